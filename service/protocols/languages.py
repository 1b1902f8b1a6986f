"""Codes and English names of languages."""

from collections.abc import Mapping

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
_TWO_LETTERS = {three: two for two, (three, _) in _NAMES.items()}


def two_letters(code: str) -> str:
    """Return the ISO 639-1 code of a language without region or script, or another code in lower case as it is."""
    plain = code.replace("_", "-").partition("-")[0].lower()
    return _TWO_LETTERS.get(plain, plain)


def same_language(one: str, other: str) -> bool:
    """Return whether codes name the same language: `EN-GB`, `eng` and `en` do."""
    return two_letters(one) == two_letters(other)


def language_name(code: str) -> str:
    """Return the English name of a language, or its code where it is not in the table."""
    return _NAMES.get(two_letters(code), ("", code))[1]
