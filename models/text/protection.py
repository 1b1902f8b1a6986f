"""Parts of texts that a translation must have byte for byte and exactly once: what they are, and where they stand.

Parts are found by patterns of this module, one for each kind, and by regular expressions of a request. Those are
untrusted: they are limited in number and length, run by the package `regex`, which ends a match that takes too long and
releases the interpreter lock meanwhile, and may find a limited number of parts. `re` could neither be ended nor
interrupted, and linear-time engines lack the lookbehinds that such expressions often have. The module's own patterns
are run by `regex` in long texts, and by `re`, which takes half the time and less, in short ones.
"""

import functools
import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import regex

from models.errors import QueryError
from models.text.numbers import NUMBER, Convention, localized
from models.text.words import Span

__all__ = [
    "DEFAULT_KINDS",
    "DEFAULT_PROTECTION",
    "KINDS",
    "MAX_PATTERNS",
    "MAX_PATTERN_LENGTH",
    "Kind",
    "Protected",
    "Protection",
    "check_pattern",
    "translated_part",
]

Kind = Literal[
    "url", "email", "handle", "hashtag", "iban", "placeholder", "filename", "version", "code", "measure", "number"
]
"""Kinds of parts that are found without an expression."""

KINDS: tuple[Kind, ...] = get_args(Kind)
DEFAULT_KINDS: tuple[Kind, ...] = tuple(each for each in KINDS if each != "measure")
"""The kinds that are found unless a request says which. A number with separators is one of them, with its unit."""
MAX_PATTERNS = 16
MAX_PATTERN_LENGTH = 200
"""Characters of a regular expression."""
_MAX_PARTS = 500
"""Parts of one text."""
_SECONDS = 0.05
"""Time in which all expressions of a request must have found their parts of one text."""
_WINDOW, _LONGEST_PART = 4096, 2048
"""Characters that `re` looks at together, for some milliseconds at worst, and more than any part of a kind has."""
_PRIVATE_USE = (0xF0000, 0x100000, 0xE000)
"""First characters of the planes and the block for private use, of which one stands for each part."""

_END = r"(?<![.,:;!?'\")\]}])"
_ADDRESS = rf"[^\s<>\"„“”»«\U000F0000-\U0010FFFF]{{1,2000}}{_END}"
_FILE_ENDINGS = (
    "bat|bin|bmp|cfg|conf|csv|css|db|dll|docx?|exe|gif|gz|hpp|html?|ico|ini|ipynb|java|jpe?g|js|json|jsx|lock|log|md"
    "|mp[34]|odt|ods|pdf|php|png|po|pptx?|properties|py|rar|rs|rtf|sh|so|sql|srt|svg|tar|tgz|tiff?|toml|ts|tsx|txt|vtt"
    "|wav|webp|xlsx?|xml|ya?ml|zip"
)
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr"
"""Elements of HTML without content."""
_UNITS = "kg|mg|g|t|km/h|km|cm|mm|m|ml|cl|l|kWh|kW|W|V|A|GHz|MHz|Hz|KB|MB|GB|TB|°C|°F|€|EUR|USD|\\$|£"
_SHARES = "°|%|‰"
"""Signs that a model needs in order to translate the words around a number, such as an increase of 5 %."""
_BRANCHES = functools.reduce(lambda within, _: rf"(?:[^{{}}\n]|\{{{within}\}})*+", range(4), r"[^{}\n]*+")
"""The content of the braces of a plural or a selection of ICU MessageFormat, whose branches have arguments."""
_PATTERNS: dict[Kind, str] = {
    "url": rf"(?:https?|ftps?|file|ssh|git)://{_ADDRESS}|(?<!\w)(?:mailto|tel):{_ADDRESS}|(?<![\w.])www\.{_ADDRESS}",
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "placeholder": (
        rf"<(?!(?:{_VOID})\b)[A-Za-z][\w:-]{{0,63}}\s?/>"
        r"|\{\s?[\w.-]{1,64}\s?,\s?(?:plural|select|selectordinal)\s?," + _BRANCHES + r"\}"
        r"|\{\{[^{}\n]{1,200}\}\}|[$#%]?\{(?!\\)[^{}\n]{0,200}\}|%[A-Za-z_]\w{1,63}%"
        r"|%\([\w.]{1,64}\)[-+#0]{0,2}\d{0,3}(?:\.\d{1,3})?[sdifgrxX](?!\w)"
        r"|%(?:\d{1,2}\$)?[-+#0]{0,2}\d{0,3}(?:\.\d{1,3})?(?:l{1,2}|h{1,2}|z)?[sdiufFgGeExXcopr@](?!\w)"
        r"|(?<!\w)\$[A-Za-z_]\w{0,63}|(?<!\w)%\d(?!\d|[.,]\d|\s?\w)"
    ),
    "iban": r"(?<!\w)[A-Z]{2}\d{2}(?:[ ]?[A-Z\d]{4}){2,7}(?:[ ]?[A-Z\d]{1,3})?(?!\w)",
    "handle": r"(?<![\w@./])@\w[\w.]{0,62}\w",
    "hashtag": r"(?<![\w#&/])#\w{1,64}",
    "filename": (
        rf"(?<!\w)[A-Za-z]:\\{_ADDRESS}|(?<![\w/.])(?:~|\.{{1,2}})?/[\w.-]{{1,64}}(?:/[\w.-]{{1,64}}){{1,20}}/?{_END}"
        rf"|(?<![\w./-])(?:[\w-]{{1,63}}/){{0,9}}[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,5}}\.(?:{_FILE_ENDINGS})(?![\w-])"
    ),
    "version": r"(?<![\w.])v\d{1,5}(?:\.\d{1,6}){0,3}(?:[-+][\w.]{1,32})?(?![\w.]*\w)"
    r"|(?<![\w.])\d{1,4}\.\d{1,4}\.\d{1,6}(?:\.\d{1,6})?[-+][A-Za-z][\w.]{0,32}(?!\w)",
    "code": (
        r"(?<![\w.-])(?!\d{4}-\d\d-\d\d)(?=[A-Z\d_/-]{0,40}\d)(?=[\d_/-]{0,40}[A-Z])[A-Z\d]{2,20}(?:[-_/][A-Z\d]{1,20}){1,6}(?![\w-])"
        r"|(?<![\w.-])(?:[A-Z]{2,8}\d{2,16}|[A-Z]\d{3,16})[A-Z\d]{0,16}(?![\w-])"
        r"|(?<!\w)[A-Za-z]\w{0,63}_\w{1,63}(?!\w)"
    ),
    "measure": rf"(?<![\w.,])[-+−]?\d[\d.,'’]{{0,20}}(?<=\d)[\u00a0\u202f ]?(?:{_UNITS}|{_SHARES})(?!\w)",
    "number": rf"{NUMBER}(?:[\u00a0\u202f ]?(?:{_UNITS})(?!\w))?",
}
_NUMBERS: tuple[Kind, ...] = ("measure", "number")
"""Kinds that languages write in ways of their own."""
_NUMBER_START = re.compile(r"[-+−]?\d(?:[.,'’\u00a0\u202f]?\d)*")
_SIGNIFICANT = re.compile(
    r"[@#$%{\\_/°‰€£]|www\.|\w\.\w|[A-Z][\d-]|\d[A-Z]|\d ?[A-Za-z]|\d[,'’\u00a0\u202f]\d|mailto:|tel:"
)
"""What every part of these kinds has."""


@dataclass(frozen=True, slots=True)
class Protected:
    """A text with a character for private use in place of each part."""

    text: str
    parts: dict[str, str]
    """The part that each of these characters stands for."""
    kinds: dict[str, Kind | None]
    """The kind of each, none where an expression of the request found it."""

    def restored(self, text: str, parts: Mapping[str, str] | None = None) -> str:
        """Return a text with the parts, or others, in place of their characters."""
        chosen = self.parts if parts is None else parts
        return text.translate({ord(mark): part for mark, part in chosen.items()}) if chosen else text

    def target_parts(self, conventions: tuple[Convention, Convention] | None) -> dict[str, str]:
        """Return the translation of each character: the part, a number as the second convention writes it."""
        if conventions is None:
            return self.parts
        return {
            mark: _localized(part, *conventions) if self.kinds[mark] in _NUMBERS else part
            for mark, part in self.parts.items()
        }


def _localized(part: str, source: Convention, target: Convention) -> str:
    """Return a number, and its unit where it has one, as another language writes it."""
    number = _NUMBER_START.match(part)
    return part if number is None else localized(number[0], source, target) + part[number.end() :]


@dataclass(frozen=True, slots=True)
class Protection:
    """What of texts is protected. Raises `QueryError` naming the field `protect` for expressions out of bounds."""

    kinds: tuple[Kind, ...] = DEFAULT_KINDS
    patterns: tuple[str, ...] = ()
    """Regular expressions, whose matches go before those of the kinds."""
    numbers: Literal["copy", "localize"] = "copy"
    """Whether numbers are written as in the text, or as the target language writes them."""

    def __post_init__(self) -> None:
        if len(self.patterns) > MAX_PATTERNS:
            raise QueryError(f"protect must have at most {MAX_PATTERNS} expressions, not {len(self.patterns)}")
        for index, pattern in enumerate(self.patterns):
            try:
                check_pattern(pattern)
            except ValueError as error:
                raise QueryError(f"protect.{index}: {error}") from error

    def of(self, text: str, also: Sequence[Span] = ()) -> Protected | None:
        """Return a text with marks in place of its parts; None for one without any.

        Parts do not overlap and have no line breaks: the first one counts, of those with one start that of the earlier
        expression or kind. `also` are spans of at most 500 further parts. Raises `QueryError` where an expression takes
        too long, or finds too many parts.
        """
        given: list[tuple[Span, Kind | None]] = [(span, None) for span in also]
        spans = [*given, *self._requested(text), *self._known(text)]
        return None if not spans else _marked(text, spans[:_MAX_PARTS] if given else spans)

    def _known(self, text: str) -> list[tuple[Span, Kind | None]]:
        if not self.kinds:
            return []
        found: list[tuple[Span, Kind | None]] = []
        for match in itertools.islice(_matches(self.kinds, text), _MAX_PARTS):
            kind: Kind = match.lastgroup  # type: ignore[assignment]
            found.append((match.span(), kind))
        return found

    def _requested(self, text: str) -> list[tuple[Span, Kind | None]]:
        found: list[tuple[Span, Kind | None]] = []
        ends = time.monotonic() + _SECONDS
        for index, pattern in enumerate(self.patterns):
            try:
                left = max(1e-3, ends - time.monotonic())
                for match in check_pattern(pattern).finditer(text, timeout=left, concurrent=True):
                    start, end = match.span()
                    if start < end and not _breaks(text[start:end]):
                        found.append(((start, end), None))
                    if len(found) > _MAX_PARTS:
                        raise QueryError(f"protect.{index} finds more than {_MAX_PARTS} parts of a text")
                    if time.monotonic() > ends:
                        raise TimeoutError
            except TimeoutError:
                raise QueryError(
                    f"protect.{index} takes longer than {1000 * _SECONDS:g} ms on a text of {len(text)} characters"
                ) from None
        return found


DEFAULT_PROTECTION = Protection()
"""The kinds that are found by default, with numbers as in the text."""


@functools.lru_cache(maxsize=64)
def check_pattern(pattern: str) -> "regex.Pattern[str]":
    """Return a compiled expression of a request; raises `ValueError` for one that is invalid, too long or empty."""
    if not 1 <= len(pattern) <= MAX_PATTERN_LENGTH:
        raise ValueError(f"an expression must have 1 to {MAX_PATTERN_LENGTH} characters, not {len(pattern)}")
    try:
        return regex.compile(pattern, cache_pattern=False)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error


def _expression(kinds: tuple[Kind, ...]) -> str:
    chosen = [kind for kind in _PATTERNS if kind in kinds]
    return "|".join(f"(?P<{kind}>{_PATTERNS[kind]})" for kind in chosen)


@functools.lru_cache(maxsize=64)
def _pattern(kinds: tuple[Kind, ...]) -> re.Pattern[str]:
    return re.compile(_expression(kinds))


@functools.lru_cache(maxsize=64)
def _pattern_of_long_texts(kinds: tuple[Kind, ...]) -> "regex.Pattern[str]":
    return regex.compile(_expression(kinds), cache_pattern=False)


def _matches(kinds: tuple[Kind, ...], text: str) -> "Iterator[re.Match[str] | regex.Match[str]]":
    """Yield the matches of the kinds' patterns.

    `re`, which is faster, holds the interpreter lock, and looks at little at a time: at a short text, and in a long one
    for the first place that may have a part, from where `regex` goes on without the lock.
    """
    windows = range(0, len(text), _WINDOW)
    start = next((each for each in windows if _SIGNIFICANT.search(text, each, each + _WINDOW + _LONGEST_PART)), None)
    if start is None:
        return
    if len(text) <= _WINDOW:
        yield from _pattern(kinds).finditer(text)
    else:
        yield from _pattern_of_long_texts(kinds).finditer(text, start, concurrent=True)


def _breaks(part: str) -> bool:
    return len(part.splitlines()) > 1 or part.splitlines() != [part]


def _marked(text: str, spans: Sequence[tuple[Span, Kind | None]]) -> Protected | None:
    """Return a text with marks in place of spans, of which earlier ones of the list count where they overlap."""
    first = next((each for each in _PRIVATE_USE if not _uses(text, each)), None)
    if first is None:
        return None
    pieces: list[str] = []
    parts: dict[str, str] = {}
    kinds: dict[str, Kind | None] = {}
    done = 0
    for (start, end), kind in _apart(spans)[:_MAX_PARTS]:
        mark = chr(first + len(parts))
        parts[mark], kinds[mark] = text[start:end], kind
        pieces += [text[done:start], mark]
        done = end
    return Protected("".join([*pieces, text[done:]]), parts, kinds)


def _uses(text: str, first: int) -> bool:
    return not text.isascii() and any(first <= ord(letter) < first + _MAX_PARTS for letter in text)


def _apart(spans: Sequence[tuple[Span, Kind | None]]) -> list[tuple[Span, Kind | None]]:
    """Return spans that do not overlap, in the order of the text; those of expressions are kept before others."""
    kept: list[tuple[Span, Kind | None]] = []
    last = 0
    asked = sorted((each for each in spans if each[1] is None), key=lambda each: each[0])
    for span, kind in asked:
        if span[0] >= last:
            kept.append((span, kind))
            last = span[1]
    blocked = [span for span, _ in kept]
    place = 0
    for span, kind in spans:
        if kind is None:
            continue
        while place < len(blocked) and blocked[place][1] <= span[0]:
            place += 1
        if place == len(blocked) or span[1] <= blocked[place][0]:
            kept.append((span, kind))
    return sorted(kept, key=lambda each: each[0])


_BEFORE_LAST = re.compile(r"[.:!?…(\[–—-]\s*$")
"""The end of a sentence, or of its first part, behind which a part stands apart."""
_AFTER_FIRST = re.compile(r"\s*[:,–—-]\s")
_CLOSING = re.compile(r"[\s.,:;!?…)\]}>'\"”“»«]*$")
_OPENING = re.compile(r"[\s(\[{<'\"“„»«]*")


def translated_part(core: str, protected: Protected) -> Span:
    """Return the characters of a sentence with marks without the parts at its ends that do not belong to it.

    These are hashtags at its end, handles at its start, parts behind a colon or another sentence, and parts before a
    comma or colon. Both are equal where nothing but parts is left.
    """
    start, end = 0, len(core)
    while start < end:
        closing = _CLOSING.search(core, start, end)
        place = end if closing is None else closing.start()
        mark = core[place - 1] if place > start else ""
        if mark not in protected.parts or not _is_apart_at_end(core[start : place - 1], protected.kinds[mark]):
            break
        end = place - 1
        while end > start and (core[end - 1].isspace() or core[end - 1] in "([{<"):
            end -= 1
    while start < end:
        opening = _OPENING.match(core, start, end)
        place = start if opening is None else opening.end()
        mark = core[place : place + 1] if place < end else ""
        if mark not in protected.parts:
            break
        kind = protected.kinds[mark]
        if not (kind == "handle" and core[place + 1 : place + 2].isspace()) and not _AFTER_FIRST.match(core, place + 1):
            break
        start = place + 1
        while start < end and (core[start].isspace() or core[start] in ":,–—-"):
            start += 1
    return start, end


def _is_apart_at_end(before: str, kind: Kind | None) -> bool:
    return kind == "hashtag" or not before.strip() or _BEFORE_LAST.search(before) is not None
