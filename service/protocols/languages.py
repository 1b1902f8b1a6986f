"""Codes and English names of languages."""

from collections.abc import Mapping

from models.text.language_codes import same_language, two_letters

__all__ = ["language_name", "same_language", "two_letters"]

_NAMES: Mapping[str, tuple[str, str]] = {
    "ar": ("ara", "Arabic"),
    "bg": ("bul", "Bulgarian"),
    "ca": ("cat", "Catalan"),
    "cs": ("ces", "Czech"),
    "da": ("dan", "Danish"),
    "de": ("deu", "German"),
    "el": ("ell", "Greek"),
    "en": ("eng", "English"),
    "eo": ("epo", "Esperanto"),
    "es": ("spa", "Spanish"),
    "et": ("est", "Estonian"),
    "eu": ("eus", "Basque"),
    "fa": ("fas", "Persian"),
    "fi": ("fin", "Finnish"),
    "fr": ("fra", "French"),
    "gl": ("glg", "Galician"),
    "he": ("heb", "Hebrew"),
    "hi": ("hin", "Hindi"),
    "hr": ("hrv", "Croatian"),
    "hu": ("hun", "Hungarian"),
    "id": ("ind", "Indonesian"),
    "it": ("ita", "Italian"),
    "ja": ("jpn", "Japanese"),
    "ko": ("kor", "Korean"),
    "lt": ("lit", "Lithuanian"),
    "lv": ("lav", "Latvian"),
    "nb": ("nob", "Norwegian"),
    "nl": ("nld", "Dutch"),
    "pl": ("pol", "Polish"),
    "pt": ("por", "Portuguese"),
    "ro": ("ron", "Romanian"),
    "ru": ("rus", "Russian"),
    "sk": ("slk", "Slovak"),
    "sl": ("slv", "Slovenian"),
    "sr": ("srp", "Serbian"),
    "sv": ("swe", "Swedish"),
    "th": ("tha", "Thai"),
    "tr": ("tur", "Turkish"),
    "uk": ("ukr", "Ukrainian"),
    "vi": ("vie", "Vietnamese"),
    "zh": ("zho", "Chinese"),
}
"""ISO 639-1 code: ISO 639-3 code and name, of the languages that translation models are mostly trained on."""


def language_name(code: str) -> str:
    """Return the English name of a language, or its code where it is not in the table."""
    return _NAMES.get(two_letters(code), ("", code))[1]
