"""Models of others in, our models out.

    hugging_face   Marian (OPUS-MT) as Hugging Face's transformers stores it, both ways
    npz            Marian's own format, in
    hub            a model by its name, from the Hugging Face hub
    importing      any of them as a bundle
    exporting      a bundle in Hugging Face's or CTranslate2's format

Files of others are read as data: nothing in them is run, and what is not understood is refused.
"""

from pellucid.exchange.exporting import export_model
from pellucid.exchange.importing import import_model

__all__ = ["export_model", "import_model"]
