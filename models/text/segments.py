"""What of a text is translated: sentences within lines and cells. The rest is copied, byte for byte.

Line breaks, tabs, indentation, list bullets, quotation marks of e-mails, time stamps of subtitles and of chat logs,
markup and emojis around a sentence, and whatever has no letters of the language are copied.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from models.text.literals import MARKUP, verbatim_spans, without_literals
from models.text.scripts import Script
from models.text.sentences import sentences_of

__all__ = ["Segmenter", "Segments", "printable"]

_START_SIZE = 400
"""Characters of a line in which indentation and bullets are looked for."""
_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_BLOCK = 4000
"""Characters that a regular expression looks at in one call, which does not release the interpreter lock. Markup and
addresses around a longer sentence are not looked for."""
_BOUNDARY = re.compile(rf"(\s{{2,}}|[\t\x1f]|{MARKUP}|\{{\\[^{{}}]{{0,200}}\}})")
"""What may separate cells: white space, markup, and the styles of subtitles, such as `{\\an8}`."""
_JOINERS = "\u200c\u200d"
"""Zero-width characters that change how letters look in some scripts, and join emojis."""
_INVISIBLE = "\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
_REMOVED = re.compile(f"[{_INVISIBLE}]+")
_REMOVED_JOINERS = re.compile(rf"(?<=[^\W\d_])[{_JOINERS}]+(?=[^\W\d_]|\s|$)|(?<=\s)[{_JOINERS}]+|^[{_JOINERS}]+")
_WORD_BREAKS = frozenset({"th", "tha", "lo", "lao", "km", "khm", "my", "mya"})
"""Languages without spaces, in which U+200B separates words."""
_SPACES = re.compile(r"[^\S\u00a0]+")
"""White space that is a single space to a model. Those trained on texts of the web know U+00A0, as before "Uhr"."""

_HYPHENATED = re.compile(r"[^\W\d_][-\u00ad\u2010][ \u200b]*$")
_FIRST_WORD = re.compile(r"(\s*)([^\W\d_]\S*)\s*")
_CONJUNCTIONS = frozenset(
    {"und", "oder", "bzw", "bis", "sowie", "and", "or", "to", "et", "ou", "y", "e", "o", "ed", "en", "of", "og", "och"}
    | {"eller", "i", "lub", "a", "nebo", "ja", "tai", "és", "vagy", "si", "sau"}
)
"""Words that go on after a hyphen that stands for a shared part of two compounds ("Haupt- und Nebensaison")."""

_HYPHENATION = re.compile(r"(?<=[^\W\d_])([-\u00ad\u2010][ \u200b]*[\r\n\x85\u2028]\s*)([^\W\d_]+)")
"""A word that goes on in the next line."""

_CUE = re.compile(r"\s*(?:\d+:)?\d+:\d\d[.,]\d{3}\s*-->.*")
"""The line of subtitles that says when they are shown, and where."""
_STAMP = (
    r"\[[\d\s:./,T+-]{1,40}\]|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\[?\d{1,2}[./]\d{1,2}[./]\d{2,4},? \d{1,2}:\d\d(?::\d\d)?\]?"
)
_NUMBERED = r"\(?\d{1,3}[.)]\s+"
_BULLET = (
    r"[>|]\s?|[-–—―*•·‣⁃▪▫◦●○■□»›#=+~]+\s+|[-–—―•·‣⁃▪▫◦●○■□]+(?=[^\W\d_])|\d{1,3}\)\s+|[^\W\d_]\)\s+|\[[ xX]?\]\s+"
)
_START = re.compile(rf"\s*(?:(?:{_BULLET}|(?:{_STAMP})(?:\s*[-–—|:]\s+|\s+))\s*)*")
_NUMBERED_START = re.compile(rf"\s*(?:[>|]\s?)*{_NUMBERED}")

_LEADING = re.compile(r"[.,;:!?…)\]}»”]+\s+(?=\S)")
"""Punctuation that ends what stands before a piece, such as a tag."""
_OPENING = "<(["
_CLOSING = re.compile(r"[\s.,:;!?…)\]}>'\"”“»«]*")
"""What may stand behind the last word of a sentence."""
_EDGE = re.compile(rf"[\s{_INVISIBLE}{_JOINERS}\ufe00-\ufe0f]")


@dataclass(frozen=True, slots=True)
class Segments:
    """A text cut into sentences, which are translated, and copied pieces."""

    copied: tuple[str, ...]
    """What stands before, between and after the cores: one more than these."""
    cores: tuple[str, ...]
    """The translated pieces: sentences without the white space around them, or parts of them."""
    foreign: bool = False
    """Whether letters of another script are copied."""

    def joined(self, cores: Sequence[str]) -> str:
        """Return the text with others in place of its cores."""
        following = (piece for pair in zip(cores, self.copied[1:], strict=True) for piece in pair)
        return "".join([self.copied[0], *following])

    def restored(self, change: Callable[[str], str]) -> "Segments":
        """Return the segments with all pieces changed."""
        return Segments(tuple(map(change, self.copied)), tuple(map(change, self.cores)), self.foreign)

    def without(self, indices: Collection[int]) -> "Segments":
        """Return the segments with some of the cores copied."""
        if not indices:
            return self
        found = _Collected(foreign=self.foreign)
        found.copy(self.copied[0])
        for index, (core, after) in enumerate(zip(self.cores, self.copied[1:], strict=True)):
            if index in indices:
                found.copy(core)
            else:
                found.translate(core)
            found.copy(after)
        return found.segments()


@dataclass(slots=True)
class _Collected:
    """Segments that grow."""

    copied: list[list[str]] = field(default_factory=lambda: [[]])
    cores: list[str] = field(default_factory=list)
    foreign: bool = False

    def copy(self, text: str) -> None:
        self.copied[-1].append(text)

    def translate(self, text: str) -> None:
        self.cores.append(text)
        self.copied.append([])

    def segments(self) -> Segments:
        return Segments(tuple(map("".join, self.copied)), tuple(self.cores), self.foreign)


class Segmenter:
    """Cuts texts in a language into segments."""

    def __init__(self, language: str) -> None:
        """`language` is an ISO 639-1 or 639-3 code."""
        self._language, self._script = language, Script(language)
        self._keep_word_breaks = language in _WORD_BREAKS

    def segments(
        self, text: str, *, join_lines: bool = False, max_cores: float = math.inf, split: bool = True
    ) -> Segments:
        """Return the segments of a text; with `join_lines` a sentence may go on in the next line.

        Without `split` the text is a single sentence, whatever lines and sentences it has. Cutting ends with the first
        line after which there are more than `max_cores`.
        """
        found = _Collected()
        if not split:
            self._add_sentence(found, text)
            return found.segments()
        lines = [(text, "")] if join_lines else _lines(text)
        numbered = sum(_NUMBERED_START.match(line, 0, _START_SIZE) is not None for line, _ in lines) > 1
        for line, line_break in lines:
            if _is_copied(line):
                found.copy(line)
            elif line:
                self._add_line(found, line, numbered=numbered, join_lines=join_lines)
            found.copy(line_break)
            if len(found.cores) > max_cores:
                break
        return found.segments()

    def narrowed(self, segments: Segments, part: Callable[[str], tuple[int, int]]) -> Segments:
        """Return the segments with all but a part of each core copied, and cores without words too."""
        found = _Collected(foreign=segments.foreign)
        found.copy(segments.copied[0])
        for core, after in zip(segments.cores, segments.copied[1:], strict=True):
            start, end = part(core)
            found.copy(core[:start])
            if self._is_translated(core[start:end]):
                found.translate(core[start:end])
            else:
                found.copy(core[start:end])
            found.copy(core[end:])
            found.copy(after)
        return found.segments()

    def normalized(self, core: str) -> str:
        """Return the text of a core as a model reads it: no soft hyphens, zero-width or typographic letters.

        White space is a single space, and a word that is hyphenated at the end of a line is whole.
        """
        core = _HYPHENATION.sub(_unhyphenated, core)
        if core.isascii():
            return _SPACES.sub(" ", core)
        if not self._keep_word_breaks:
            core = _REMOVED.sub("", core)
        if self._script.is_latin:
            core = _REMOVED_JOINERS.sub("", core)
        return _SPACES.sub(" ", "".join(map(_plain_letter, core)))

    def has_letters(self, text: str) -> bool:
        """Return whether there is a letter of any script but those of literals."""
        blocks = (text[first : first + _BLOCK] for first in range(0, len(text), _BLOCK))
        return any(any(map(str.isalpha, without_literals(block))) for block in blocks)

    def foreign_letters(self, core: str) -> frozenset[str]:
        """Return the letters of a core that are of another script."""
        if core.isascii() and self._script.is_latin:
            return frozenset()
        return frozenset(letter for letter in core if letter.isalpha() and not self._script.has_letters(letter))

    def _add_line(self, found: _Collected, line: str, *, numbered: bool, join_lines: bool) -> None:
        start = _line_start(line, numbered=numbered)
        found.copy(line[:start])
        for piece in _cells(line[start:], join_lines=join_lines):
            if len(piece) <= _BLOCK and _BOUNDARY.fullmatch(piece):
                found.copy(piece)
                continue
            for sentence in sentences_of(piece, self._language):
                self._add_sentence(found, sentence)

    def _add_sentence(self, found: _Collected, sentence: str) -> None:
        start, end = _core(sentence)
        core = sentence[start:end]
        if not self._is_translated(core):
            found.foreign = found.foreign or (self.has_letters(core) and not self._script.is_one_letter(core))
            found.copy(sentence)
            return
        found.copy(sentence[:start])
        found.translate(core)
        found.copy(sentence[end:])

    def _is_translated(self, core: str) -> bool:
        if len(core) <= _BLOCK:
            rest = without_literals(core)
            return self._script.has_letters(rest) and not self._script.is_one_letter(rest)
        blocks = (core[first : first + _BLOCK] for first in range(0, len(core), _BLOCK))
        return any(self._script.has_letters(without_literals(block)) for block in blocks)


def _lines(text: str) -> list[tuple[str, str]]:
    """Return the lines of a text and the break after each; the rest of a hyphenated word comes before the break."""
    lines = [_parted(line) for line in text.splitlines(keepends=True)]
    if not lines or lines[-1][1]:
        lines.append(("", ""))
    for index in range(len(lines) - 1):
        line, line_break = lines[index]
        if line_break not in ("\f", "\v") and _HYPHENATED.search(line[-20:]):
            following, next_break = lines[index + 1]
            word = _FIRST_WORD.match(following)
            if word and _continues_word(word[2]):
                lines[index] = (line.rstrip(" \u200b")[:-1] + word[2], line_break)
                lines[index + 1] = (word[1] + following[word.end() :], next_break)
    return lines


def _parted(line: str) -> tuple[str, str]:
    """Return a line and its break."""
    found = _LINE_BREAK.search(line, max(0, len(line) - 2))
    return (line, "") if found is None else (line[: found.start()], found[0])


def _continues_word(word: str) -> bool:
    """Return whether what follows a hyphen and a line break belongs to the word before it."""
    return word[0].islower() and word.rstrip(".,;:!?") not in _CONJUNCTIONS


def _unhyphenated(found: re.Match[str]) -> str:
    return found[2] if _continues_word(found[2]) else found[0]


def _is_copied(line: str) -> bool:
    """Return whether a line is a letter, or of the times or the header of subtitles."""
    if len(line) == 1:
        return line < _FIRST_OF_WORDS
    return line.startswith("WEBVTT") or ("-->" in line[:_START_SIZE] and _CUE.fullmatch(line) is not None)


def _line_start(line: str, *, numbered: bool) -> int:
    """Return where the text of a line begins: after indentation, quotation, bullets and time stamps."""
    found = (_NUMBERED_START.match(line, 0, _START_SIZE) if numbered else None) or _START.match(line, 0, _START_SIZE)
    return found.end() if found else 0


def _cells(line: str, *, join_lines: bool) -> Iterator[str]:
    """Yield the cells of a line, and what separates them.

    Cells are separated by tabs, by markup, and by two spaces and more before anything but a letter in lower case.
    """
    begun = 0
    for first in range(0, len(line), _BLOCK):
        for found in _BOUNDARY.finditer(line, first, first + _BLOCK):
            start, end = found.span()
            following = line[end : end + 1]
            if found[0].isspace() and not _separates(found[0], following, join_lines=join_lines):
                continue
            if begun < start:
                yield line[begun:start]
            yield found[0]
            begun = end
    if begun < len(line):
        yield line[begun:]


def _separates(gap: str, following: str, *, join_lines: bool) -> bool:
    """Return whether white space separates cells before a character."""
    return "\t" in gap or "\x1f" in gap or not (join_lines or following.islower())


def _core(sentence: str) -> tuple[int, int]:
    """Return start and end of a sentence without white space, emojis, URLs, addresses and placeholders around it."""
    start, end = _edges(sentence, 0, len(sentence))
    spans = verbatim_spans(sentence) if len(sentence) <= _BLOCK else []
    while spans and _CLOSING.fullmatch(sentence, spans[-1][1], end) and spans[-1][0] >= start:
        end = spans.pop()[0]
        while start < end and sentence[end - 1] in _OPENING:
            end -= 1
        start, end = _edges(sentence, start, end)
    while spans and spans[0][0] == start and spans[0][1] <= end:
        start, end = _edges(sentence, spans.pop(0)[1], end)
    leading = _LEADING.match(sentence, start, end)
    return (start if leading is None else leading.end()), end


def _edges(sentence: str, start: int, end: int) -> tuple[int, int]:
    """Return start and end of a part of a sentence without white space, invisible characters and emojis around it."""
    while start < end and _is_edge(sentence[start]):
        start += 1
    while start < end and _is_edge(sentence[end - 1]):
        end -= 1
    return start, end


def _is_edge(character: str) -> bool:
    return _EDGE.match(character) is not None or _is_pictograph(character)


def _is_pictograph(character: str) -> bool:
    """Return whether a character is a picture, an arrow, or a mathematical sign beyond Latin-1."""
    return character >= "\u2190" and unicodedata.category(character) in ("So", "Sm", "Sk")


def _plain_letter(character: str) -> str:
    """Return the letters of a ligature or of a letter in a typographic form such as fullwidth or mathematical bold."""
    if character < "\u02b0" or not character.isalpha():
        return character
    form = unicodedata.decomposition(character)
    return unicodedata.normalize("NFKC", character) if form.startswith(_FORMS) else character


_FIRST_OF_WORDS = "\u02b0"
"""Below it a single character is no word."""
_FORMS = ("<compat>", "<font>", "<wide>", "<narrow>", "<initial>", "<medial>", "<final>", "<isolated>")


def printable(text: str, source: str) -> str:
    """Return a translation without invisible and control characters that its source does not have."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in source else _HARMLESS.get(letter, "") for letter in text)


_HARMLESS = dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029\u00a0\u202f\u2009", " ")
"""White space, by what stands in its place."""
