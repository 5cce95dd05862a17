"""Import models of other toolkits, and export ours to them.

    hugging_face   Marian (OPUS-MT) in the format of Hugging Face's transformers, both ways
    npz            Marian's own format, import only
    hub            download of a model by its name from the Hugging Face hub
    importing      any of them to a bundle
    exporting      a bundle to Hugging Face's or CTranslate2's format

Foreign files are read as data: nothing in them is executed, and what is not understood is refused.
"""

from pellucid.exchange.exporting import export_model
from pellucid.exchange.importing import import_model

__all__ = ["export_model", "import_model"]
