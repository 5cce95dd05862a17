"""English names of languages, and language identification."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, NamedTuple

_NAMES = """
af Afrikaans|am Amharic|an Aragonese|ar Arabic|as Assamese|az Azerbaijani|be Belarusian|bg Bulgarian
bn Bengali|br Breton|bs Bosnian|ca Catalan|cs Czech|cy Welsh|da Danish|de German|dz Dzongkha
el Greek|en English|eo Esperanto|es Spanish|et Estonian|eu Basque|fa Persian|fi Finnish|fo Faroese
fr French
fy Western Frisian|ga Irish|gd Scottish Gaelic|gl Galician|gu Gujarati|ha Hausa|he Hebrew|hi Hindi
hr Croatian|ht Haitian Creole|hu Hungarian|hy Armenian|id Indonesian|ig Igbo|is Icelandic|it Italian
ja Japanese|jv Javanese|ka Georgian|kk Kazakh|km Khmer|kn Kannada|ko Korean|ku Kurdish|ky Kyrgyz
la Latin|lb Luxembourgish|lo Lao|lt Lithuanian|lv Latvian|mg Malagasy|mi Maori|mk Macedonian
ml Malayalam|mn Mongolian|mr Marathi|ms Malay|mt Maltese|my Burmese|nb Norwegian Bokmål|ne Nepali
nl Dutch|nn Norwegian Nynorsk|no Norwegian|oc Occitan|or Odia|pa Punjabi|pl Polish|ps Pashto
pt Portuguese|qu Quechua|ro Romanian|ru Russian|rw Kinyarwanda|sd Sindhi|se Northern Sami|si Sinhala
sk Slovak|sl Slovenian|sn Shona|so Somali|sq Albanian|sr Serbian|st Southern Sotho|su Sundanese
sv Swedish|sw Swahili|ta Tamil|te Telugu|tg Tajik|th Thai|ti Tigrinya|tk Turkmen|tl Tagalog
tr Turkish|tt Tatar|ug Uyghur|uk Ukrainian|ur Urdu|uz Uzbek|vi Vietnamese|vo Volapük|wa Walloon
xh Xhosa
yi Yiddish|yo Yoruba|zh Chinese|zu Zulu
"""

MAX_CHARACTERS = 2000
"""Characters of a text that are used to identify its language."""


class Detected(NamedTuple):
    """A language that a text may be in, and how probable it is."""

    language: str
    confidence: float
    """From 0 to 100, as in LibreTranslate."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"confidence": round(self.confidence, 1), "language": self.language}


@cache
def _names() -> dict[str, str]:
    entries = _NAMES.replace("\n", "|").split("|")
    return dict(entry.split(" ", 1) for entry in entries if entry)


def name_of(code: str) -> str:
    """Return the English name of a language: "French" for "fr", "Portuguese (BR)" for "pt_BR"."""
    first, _, rest = code.replace("-", "_").partition("_")
    name = _names().get(first.lower(), first)
    return f"{name} ({rest.replace('_', ' ')})" if rest else name


def detect(text: str) -> list[Detected]:
    """Identify the language of a text: return candidates, most probable first.

    Empty for a text without a letter.
    """
    head = text[:MAX_CHARACTERS]
    if not any(character.isalpha() for character in head):
        return []
    with _lock:
        ranked = _identifier().rank(head)
    return [Detected(code, 100 * float(share)) for code, share in ranked if share >= 0.01]


_lock = threading.Lock()


@cache
def _identifier() -> Any:
    from py3langid.langid import (  # type: ignore[import-untyped]
        MODEL_FILE,
        LanguageIdentifier,
    )

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
