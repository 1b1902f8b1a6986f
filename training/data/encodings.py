"""Detection of the encoding of a text file that says none.

UTF-8 and UTF-16 are known by their bytes. Others are a guess: that of a script by charset-normalizer, that of a Latin
alphabet by the language that its text is in.
"""

import codecs
import itertools
import re
from collections.abc import Collection, Iterable, Mapping

from charset_normalizer import from_bytes

from models.text.language import detected_languages

__all__ = ["is_guess", "likely_encoding", "spelled_by_guess"]

_SAMPLE, _LANGUAGE_SAMPLE = 1_000_000, 4000
"""Bytes of a text that are looked at for its script, and of its lines outside of ASCII for its language."""
_WESTERN = "cp1252"
_CYRILLIC = frozenset({"be", "bg", "kk", "mk", "ru", "sr", "uk"})
_SCRIPTS: Mapping[str, frozenset[str]] = {
    "cp1251": _CYRILLIC,
    "koi8_r": _CYRILLIC,
    "cp1253": frozenset({"el"}),
    "cp1255": frozenset({"he"}),
    "cp1256": frozenset({"ar", "fa", "ur"}),
    "cp874": frozenset({"th"}),
    "cp932": frozenset({"ja"}),
    "euc_jp": frozenset({"ja"}),
    "gb18030": frozenset({"zh"}),
    "big5": frozenset({"zh"}),
    "cp949": frozenset({"ko"}),
}
"""Encodings of other scripts than the Latin one, and their languages; cp932 is the Shift JIS of Windows."""
_CENTRAL = frozenset({"bs", "cs", "hr", "hu", "pl", "ro", "sk", "sl"})
_ALPHABETS: Mapping[str, frozenset[str]] = {
    "cp1250": _CENTRAL,
    "iso8859_2": _CENTRAL,
    "cp1254": frozenset({"az", "tr"}),
    "cp1257": frozenset({"lt", "lv"}),
}
"""Encodings of Latin alphabets that cp1252 lacks, and the languages for which they are taken."""
_FOREIGN = 0.6
"""Share of bytes above 127 from which words are of another script; those of French and Czech have 0.2 to 0.5."""
_CERTAIN = 0.5
"""Probability from which a language is taken to be that of a text."""
_WORD = re.compile(rb"[^\s,;|\"]*[\x80-\xff][^\s,;|\"]*")
_HIGH, _LETTER = re.compile(rb"[\x80-\xff]"), re.compile(rb"[A-Za-z]")
_CONTROL = re.compile(rb"[\x80-\x9f]")
"""Control characters of ISO 8859, letters and signs of Windows."""
_LINE = re.compile(rb"[^\t\r\n]*[\x80-\xff][^\t\r\n]*")
_SPELLED = re.compile(r"[^\W\d_]*[^\W\d_\x00-\x7f]+[^\W\d_]*")
_SHOWN = 5
"""Words that `spelled_by_guess` returns at most."""


def likely_encoding(content: bytes) -> str:
    """Return the encoding of a text: by its byte order mark, UTF-8 where it is that, else the most likely one.

    Where nothing speaks for another, it is cp1252, the one of Western Windows, or latin-1 where a byte is no character
    of that.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-16-le", "utf-16-be"):
        if b"\0" in content and _has_lines(content, encoding):
            return encoding
    if _fits(content, "utf-8"):
        return "utf-8"
    guessed = _of_script(content) if _is_foreign(content[:_SAMPLE]) else _of_alphabet(content)
    return guessed or (_WESTERN if _fits(content, _WESTERN) else "latin-1")


def is_guess(encoding: str) -> bool:
    """Return whether an encoding that `likely_encoding` returns may be wrong."""
    return not encoding.startswith("utf")


def spelled_by_guess(texts: Iterable[str]) -> list[str]:
    """Return a few words by which a reader sees whether the encoding of texts is right: those outside of ASCII."""
    found = (match.group() for text in texts for match in _SPELLED.finditer(text))
    return list(dict.fromkeys(itertools.islice(found, _SHOWN)))


def _fits(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _is_foreign(content: bytes) -> bool:
    """Return whether words outside of ASCII are mostly so; signs that stand alone, such as `£5`, are no words."""
    high = letters = 0
    for word in _WORD.findall(content):
        outside, inside = len(_HIGH.findall(word)), len(_LETTER.findall(word))
        if outside > 1 or inside:
            high, letters = high + outside, letters + inside
    return high > _FOREIGN * (high + letters)


def _has_lines(content: bytes, encoding: str) -> bool:
    """Return whether a text is of lines in UTF-16 of this byte order: half of its line feeds are, and no byte is 0."""
    if not _fits(content, encoding):
        return False
    text = content.decode(encoding)
    return "\0" not in text and 2 * text.count("\n") > content.count(b"\n")


def _of_script(content: bytes) -> str | None:
    """Return the encoding of a text in another script than the Latin one; None where it is in none that is known."""
    lines = _LINE.findall(content[:_SAMPLE])
    sample = b"\n".join(lines if len(content) <= _SAMPLE else lines[:-1] or lines)  # the last one may be cut
    matches = from_bytes(sample, cp_isolation=list(_SCRIPTS))
    fitting = (each.encoding for each in matches if _fits(content, each.encoding))
    return next((each for each in fitting if _is_in(sample.decode(each, "ignore"), _SCRIPTS[each])), None)


def _of_alphabet(content: bytes) -> str | None:
    """Return the encoding of a text of a Latin alphabet that cp1252 has not; None for another."""
    sample = b" ".join(_LINE.findall(content[:_SAMPLE]))[:_LANGUAGE_SAMPLE]
    fitting: list[tuple[int, bool, str]] = []
    windows = _CONTROL.search(content) is not None
    for encoding, languages in _ALPHABETS.items():
        if _fits(content, encoding):
            text = sample.decode(encoding, "ignore")
            if _is_in(text, languages):
                fitting.append((sum(map(str.isalpha, text)), encoding.startswith("cp") == windows, encoding))
    return max(fitting)[-1] if fitting else None


def _is_in(text: str, languages: Collection[str]) -> bool:
    found = detected_languages(text)
    return bool(found) and found[0][0] in languages and found[0][1] >= _CERTAIN
