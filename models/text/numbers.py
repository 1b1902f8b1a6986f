"""How languages write numbers, and numbers of one language as another writes them.

Separators are those of the Unicode CLDR (`decimal` and `group` of the Latin digits).
"""

import re
from dataclasses import dataclass

__all__ = ["NUMBER", "Convention", "convention", "localized"]

_GROUPS = r"\d{1,3}(?:[.,'’]\d{3}|[\u00a0\u202f]\d{3}(?!\d)){1,8}(?:[.,]\d{1,20})?"
_DECIMALS = r"\d{1,20},\d{1,20}|\d{1,20}\.(?!\d\d(?!\d))\d{1,20}"
NUMBER = rf"(?<![\w.,:/'’-])[-+−]?(?:{_GROUPS}|{_DECIMALS})(?![\w/-]|[.,:'’]\d|[\u00a0\u202f]\d{{3}})"
"""Pattern of a number with separators. One with two digits behind a point may be a time of day, and is none."""

_NARROW, _SPACE = "\u202f", "\u00a0"
_LANGUAGES: dict[tuple[str, str], str] = {
    (",", "."): "az bs ca da de el es eu fo gl hr id is it jv lb mk nl pt ro sl sr tr vi",
    (",", _SPACE): "af be bg cs eo et fi hu hy ka kk ky lt lv nb nn no pl ru sk sq sv tg tk uk uz",
    (",", _NARROW): "br fr",
    (".", ","): "am cy en ga he ja ko ms mt sw th tl zh zu",
}
"""Languages by their decimal and group separators."""


@dataclass(frozen=True, slots=True)
class Convention:
    """The separators of a language."""

    decimal: str
    group: str


def convention(language: str) -> Convention | None:
    """Return the separators of a language by its code, which may name a script or region too; None: not known."""
    code = re.split("[_-]", language)[0]
    code = _TWO_LETTERS.get(code, code)
    return next((Convention(*found) for found, codes in _LANGUAGES.items() if code in codes.split()), None)


_TWO_LETTERS = {
    "bul": "bg", "cat": "ca", "ces": "cs", "dan": "da", "deu": "de", "ell": "el", "eng": "en", "est": "et",
    "eus": "eu", "fin": "fi", "fra": "fr", "gle": "ga", "glg": "gl", "heb": "he", "hrv": "hr", "hun": "hu",
    "ind": "id", "isl": "is", "ita": "it", "jpn": "ja", "kor": "ko", "lav": "lv", "lit": "lt", "mkd": "mk",
    "nld": "nl", "nob": "nb", "nor": "no", "pol": "pl", "por": "pt", "ron": "ro", "rus": "ru", "slk": "sk",
    "slv": "sl", "spa": "es", "sqi": "sq", "srp": "sr", "swe": "sv", "tha": "th", "tur": "tr", "ukr": "uk",
    "vie": "vi", "zho": "zh",
}  # fmt: skip
"""ISO 639-1 codes of ISO 639-3 codes that models name their languages by."""


def localized(number: str, source: Convention, target: Convention) -> str:
    """Return a number as the target writes it; what is no number of the source, such as a date, stays as it is."""
    group = rf"[{'.' if source.decimal == ',' else ','}'’{_SPACE}{_NARROW}]"
    decimal = re.escape(source.decimal)
    whole = rf"\d{{1,3}}(?:(?P<mark>{group})\d{{3}}(?:(?P=mark)\d{{3}})*)?|\d+"
    found = re.fullmatch(rf"(?P<sign>[-+−]?)(?P<whole>{whole})(?:{decimal}(?P<part>\d+))?", number)
    if found is None:
        return number
    written = re.sub(r"\D", target.group, found["whole"])
    return found["sign"] + written + (target.decimal + found["part"] if found["part"] else "")
