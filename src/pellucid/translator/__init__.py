"""Text to text: segment, tokenize, decode, join; for the command, the server and Python.

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
