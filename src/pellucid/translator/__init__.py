"""Text to text: split, tokenize, decode, join. What the command, the server and Python call.

t = pellucid.load("model")
t("je suis étudiant")
"""

from pellucid.translator.loading import Installed, installed, load
from pellucid.translator.translation import Alternative, Sentence, Translation, Variant
from pellucid.translator.translation_report import Report
from pellucid.translator.translator import Translator

__all__ = [
    "Alternative",
    "Installed",
    "Report",
    "Sentence",
    "Translation",
    "Translator",
    "Variant",
    "installed",
    "load",
]
