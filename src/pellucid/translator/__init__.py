"""Text to text: split, tokenize, decode, join. What the command, the server and Python call.

t = pellucid.load("model")
t("je suis étudiant")
"""

from pellucid.translator.loading import Installed, installed, load
from pellucid.translator.translation import Alternative, Sentence, Translation, Variant
from pellucid.translator.translation_report import TranslationReport
from pellucid.translator.translator import Translator

__all__ = [
    "Alternative",
    "Installed",
    "Sentence",
    "Translation",
    "TranslationReport",
    "Translator",
    "Variant",
    "installed",
    "load",
]
