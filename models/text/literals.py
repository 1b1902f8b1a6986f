"""Parts of a text that a translation keeps: numbers, signs, addresses, placeholders, markup and codes.

They tell whether a text has anything to translate, and whether a translation lost or changed one.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["MARKUP", "Literals", "verbatim_spans", "without_literals"]

_ENDINGS = (
    "aero|app|at|biz|ch|cn|co|com|de|dev|edu|es|eu|fr|gov|info|int|io|it|jp|mil|net|nl|org|pl|ru|tv|uk|us"
    "|bin|bmp|cfg|csv|css|doc|docx|exe|gif|gz|html?|ini|jpe?g|js|json|log|md|mp[34]|ods|odt|pdf|png|pptx?|py|rtf"
    "|sh|sql|srt|svg|tar|tgz|tiff?|toml|txt|vtt|wav|webp|xlsx?|xml|ya?ml|zip"
)
"""Ends of domain names and of file names."""

_ATTRIBUTE = (
    r"""(?:[\w:-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s"'<>]+)"""
    "|async|checked|controls|defer|disabled|download|hidden|multiple|open|readonly|required|selected)"
)
MARKUP = rf"(?=<[^<>]{{1,500}}>)(?:</?[A-Za-z][\w:-]*(?:\s+{_ATTRIBUTE})*\s*/?>|<[?!][^<>]+>)"
"""Pattern of a tag, a comment or a declaration of HTML or XML."""

_ADDRESS = r"""[^\s<>"„“”»«]{0,2000}(?<![.,:;!?'")\]])"""
"""The rest of a URL or path, without the punctuation of the sentence."""

_LITERAL = re.compile(
    rf"""
    (?P<verbatim>
        (?:https?|ftps?)://{_ADDRESS} | (?<!\w)www\.{_ADDRESS}
      | (?<![\w.+-])[\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}})+
      | {MARKUP} | <!--|-->
      | (?<!\w)[A-Z]{{2}}\d{{2}}(?:[ ]?[A-Z\d]{{4}}){{2,7}}(?:[ ]?[A-Z\d]{{1,3}})?(?!\w)
      | &(?:[A-Za-z]{{2,8}}|\#\d{{1,6}}|\#x[\dA-Fa-f]{{1,6}});
      | \{{\{{[^{{}}]{{0,200}}\}}\}} | [$%\#]?\{{[^{{}}]{{0,200}}\}} | \$[A-Za-z_]\w{{0,63}} | %[A-Za-z_]\w{{0,63}}%
      | %\([\w.]{{1,64}}\)[-+\#0]{{0,2}}\d{{0,3}}(?:\.\d{{1,3}})?[sdifgrxX](?![^\W\d_])
      | %(?:\d{{1,2}}\$)?[-+\#0]{{0,2}}\d{{0,3}}(?:\.\d{{1,3}})?(?:l{{1,2}}|h{{1,2}}|z)?[sdiufFgGeExXcopr@](?![^\W\d_])
      | (?<![\w@.])@\w[\w.]{{0,62}}\w | (?<![\w#&])\#\w{{1,64}}
      | (?<![\w/.])(?:~|\.{{1,2}})?/[\w.-]*\w(?:/[\w.-]*\w)* | (?<!\w)[A-Za-z]:\\{_ADDRESS}
      | (?<![\w-])--[A-Za-z][\w-]{{0,63}}
      | (?<![\w.-])[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,9}}\.(?:{_ENDINGS})(?![\w-])(?:/{_ADDRESS})?
    )
  | (?P<words> \w+(?:[-.:,/'’_]\w+)* )
    """,
    re.VERBOSE,
)
_LITERAL_OR_NUMBER = re.compile(r"""[\d@#%$&<{~/\\_]|--|\w\.\w|[^\W\d_][\dA-Z]""")
"""What every literal but a sign has."""
_DIGITS = re.compile(r"\d+")
_PARTS = re.compile(r"[^-/_]+")
_NUMBER = re.compile(r"\d+(?:[.,:'’]\d+)*")
_SUFFIXED = re.compile(r"\d[\d.,:'’]*[^\W\d_]+\d*")
"""A number with letters behind it, such as `90er` or `14h30`."""
_GROUPED = re.compile(r"\d{1,3}(?:([.,'’])\d{3})(?:\1\d{3})*")
"""A number with separators of thousands, or with three decimals."""
_SIGNS = frozenset("%‰‱§#@*\\_[]{}|′″µ")
_ACCENTS = frozenset("`´^¨¯˙¸˛˝˘˚")
"""Symbols that texts have in place of apostrophes."""
_TIME = re.compile(r"(?:[01]?\d|2[0-3])[.:][0-5]\d")
_SWAPPED = str.maketrans(".,", ",.")
_SPACE = re.compile(r"\s+")


def _is_sign(character: str) -> bool:
    category = unicodedata.category(character)
    return (category[0] == "S" or category == "No" or character in _SIGNS) and character not in _ACCENTS


@dataclass(frozen=True, slots=True)
class Literals:
    """The literals of a text."""

    verbatim: tuple[str, ...] = ()
    """URLs, addresses, account numbers, placeholders, markup, names of files, and identifiers."""
    codes: tuple[str, ...] = ()
    """Words with capital letters and digits, such as article numbers."""
    numbers: tuple[str, ...] = ()
    """Numbers with the separators within them, in ASCII digits."""
    signs: tuple[str, ...] = ()
    """Currency signs, units, mathematical and other symbols."""

    @classmethod
    def of(cls, text: str) -> "Literals":
        signs = () if text.isascii() and text.isalnum() else tuple(filter(_is_sign, text))
        if _LITERAL_OR_NUMBER.search(text) is None:
            return cls(signs=signs) if signs else _NONE
        kinds: dict[str, list[str]] = {"verbatim": [], "codes": [], "numbers": []}
        for kind, literal in _found(text):
            kinds[kind].append(literal)
        return cls(**{kind: tuple(found) for kind, found in kinds.items()}, signs=signs)

    def __bool__(self) -> bool:
        return bool(self.verbatim or self.codes or self.numbers or self.signs)

    def differences(self, text: str) -> int:
        """Return how many literals a translation `text` lacks, or has beyond these.

        A number may have the separators of another language (`1.000,50` as `1,000.50`, `6.30` as `6:30`), or none of
        thousands.
        """
        return self.rank(text)[1]

    def rank(self, text: str) -> tuple[bool, int]:
        """Return what orders translations: whether strings of digits differ, then how many literals do."""
        other = Literals.of(text)
        if not self and not other:
            return False, 0
        together = _SPACE.sub("", text) if self.codes else ""
        lost_codes = sum(_SPACE.sub("", code) not in together for code in self.codes)
        differences = (
            lost_codes
            + _differing(self.verbatim, other.verbatim)
            + _differing(self.signs, other.signs)
            + _differing_numbers(self.numbers, other.numbers)
        )
        return _digits(self.numbers) != _digits(other.numbers), differences


_NONE = Literals()


def verbatim_spans(text: str) -> list[tuple[int, int]]:
    """Return where URLs, addresses, account numbers, placeholders and markup begin and end."""
    if _LITERAL_OR_NUMBER.search(text) is None:
        return []
    return [found.span() for found in _LITERAL.finditer(text) if found["verbatim"] is not None]


def without_literals(text: str) -> str:
    """Return a text with spaces in place of URLs, addresses, placeholders, markup and codes."""
    if _LITERAL_OR_NUMBER.search(text) is None:
        return text
    return _LITERAL.sub(lambda found: " " if _is_literal(found) else found[0], text)


def _is_literal(found: re.Match[str]) -> bool:
    return found["verbatim"] is not None or _is_code(found[0]) or _is_identifier(found[0])


def _found(text: str) -> Iterator[tuple[str, str]]:
    """Yield the literals but signs, with their kinds."""
    for match in _LITERAL.finditer(text):
        word = match[0]
        if match["verbatim"] is not None or _is_identifier(word):
            yield "verbatim", word
        elif _is_code(word):
            yield "codes", word
            yield from (("numbers", number) for number in _numbers(word))
        else:
            for part in _PARTS.findall(word):
                if _is_code(part):
                    yield "codes", part
                yield from (("numbers", number) for number in _numbers(part))


def _is_code(word: str) -> bool:
    """Return whether a word has letters and digits as article numbers have; `90er` and `14h` are numbers."""
    if word.isalpha() or not any(map(str.isdigit, word)) or not any(map(str.isalpha, word)):
        return False
    if word == word.upper():
        return True
    return not any(mark in word for mark in "-/_") and not _SUFFIXED.fullmatch(word)


def _is_identifier(word: str) -> bool:
    return "_" in word.strip("_") and any(map(str.isalpha, word))


def _numbers(word: str) -> list[str]:
    found = _NUMBER.findall(word)
    return found if word.isascii() else ["".join(map(_ascii_digit, number)) for number in found]


def _ascii_digit(character: str) -> str:
    return str(unicodedata.decimal(character, character))


def _differing(ours: tuple[str, ...], theirs: tuple[str, ...]) -> int:
    """Return how many are only in one of two multisets."""
    if ours == theirs:
        return 0
    one, other = Counter(ours), Counter(theirs)
    return ((one - other) + (other - one)).total()


def _digits(numbers: tuple[str, ...]) -> list[str]:
    return sorted(digits for number in numbers for digits in _DIGITS.findall(number))


def _differing_numbers(ours: tuple[str, ...], theirs: tuple[str, ...]) -> int:
    if ours == theirs:
        return 0
    left, lost = list(theirs), 0
    for number in sorted(ours, key=len, reverse=True):
        found = next((spelling for spelling in _spellings(number) if spelling in left), None)
        if found is None:
            lost += 1
        else:
            left.remove(found)
    return lost + len(left)


def _spellings(number: str) -> tuple[str, ...]:
    """Return the ways to write a number: as it is, with swapped separators, without those of thousands, as a time."""
    if number.isdigit():
        return (number,)
    grouped = _GROUPED.fullmatch(number)
    others = [number.replace(grouped[1], "")] if grouped else []
    if _TIME.fullmatch(number):
        others += [number.replace(".", ":"), number.replace(":", ".")]
    return (number, number.translate(_SWAPPED), *others)
