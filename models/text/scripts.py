"""The scripts of languages: whether a text has letters that a model can read."""

import functools
import unicodedata

__all__ = ["Script"]

_LANGUAGES = {
    ("LATIN",): """af sq eu bs br ca co hr cs da nl en eo et fo fi fr fy gl de ht hu is id ga it jv rw la lv lt lb mg ms
        mt mi no nb nn oc pl pt ro gd sn sk sl so es su sw sv tl tr tk cy wo xh yo zu vi
        afr sqi eus bos bre cat cos hrv ces dan nld eng epo est fao fin fra fry glg deu hat hun isl ind gle ita jav kin
        lat lav lit ltz mlg msa mlt mri nor nob nno oci pol por ron gla sna slk slv som spa sun swa swe tgl tur tuk cym
        wol xho yor zul vie""",
    ("CYRILLIC",): "ru uk be bg mk ky rus ukr bel bul mkd kir",
    ("CYRILLIC", "LATIN"): "sr kk uz az tt mn tg srp kaz uzb aze tat mon tgk",
    ("GREEK",): "el ell",
    ("ARABIC",): "ar fa ur ps ug sd ara fas urd pus uig snd ckb",
    ("HEBREW",): "he yi heb yid",
    ("DEVANAGARI",): "hi mr ne sa hin mar nep san",
    ("BENGALI",): "bn as ben asm",
    ("ARMENIAN",): "hy hye",
    ("GEORGIAN",): "ka kat",
    ("ETHIOPIC",): "am ti amh tir",
    ("TAMIL",): "ta tam",
    ("TELUGU",): "te tel",
    ("KANNADA",): "kn kan",
    ("MALAYALAM",): "ml mal",
    ("GUJARATI",): "gu guj",
    ("GURMUKHI",): "pa pan",
    ("SINHALA",): "si sin",
    ("THAI",): "th tha",
    ("LAO",): "lo lao",
    ("KHMER",): "km khm",
    ("MYANMAR",): "my mya",
    ("CJK", "IDEOGRAPHIC", "BOPOMOFO"): "zh zho yue cmn",
    ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HIRAGANA-KATAKANA", "KATAKANA-HIRAGANA"): "ja jpn",
    ("HANGUL", "CJK"): "ko kor",
}
_SCRIPTS = {language: names for names, languages in _LANGUAGES.items() for language in languages.split()}
"""First words of the names of the letters that a language is written in (Unicode Character Database)."""
_OF_WORDS = frozenset({"CJK", "IDEOGRAPHIC", "HANGUL", "HIRAGANA", "KATAKANA"})
"""Scripts in which a single letter is often a word."""


class Script:
    """The letters of a language. A language that is not known has all letters."""

    def __init__(self, language: str) -> None:
        """`language` is an ISO 639-1 or 639-3 code."""
        self._names = _SCRIPTS.get(language)

    @property
    def is_latin(self) -> bool:
        """Whether the language is known, and written in Latin letters."""
        return self._names is not None and "LATIN" in self._names

    def has_letters(self, text: str) -> bool:
        """Return whether a text has letters of this script, in any typographic form (UAX 15, NFKC)."""
        return any(map(self._reads, text))

    def is_one_letter(self, text: str) -> bool:
        """Return whether the letters of a text are a single one of an alphabet, such as `x`, which is no word."""
        found = [letter for letter in text if _is_letter(letter)]
        return len(found) == 1 and not any(name.split()[0] in _OF_WORDS for name in _names(found[0]))

    def _reads(self, letter: str) -> bool:
        if self._names is None:
            return _is_letter(letter)
        if letter < "\x80":
            return letter.isalpha() and "LATIN" in self._names
        return _is_letter(letter) and any(name.split()[0] in self._names for name in _names(letter))


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] == "L"


@functools.lru_cache(4096)
def _names(letter: str) -> tuple[str, ...]:
    """Return the names of the letters that a letter stands for; those without a name are of no script."""
    return tuple(
        unicodedata.name(each, "UNNAMED") for each in unicodedata.normalize("NFKC", letter) if _is_letter(each)
    )
