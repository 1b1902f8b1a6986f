"""Glossaries: terms of a text, and what a translation has to use for them.

A term is found by whole words, in any case, the longest first. In languages whose usual endings are known, its last
word may have one of them (`Vertrag` finds `Vertrages`), where it has some letters and the case of its first one agrees.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from models.errors import QueryError
from models.text.words import Span

__all__ = ["MAX_ENTRIES", "MAX_TERM_LENGTH", "Entry", "Glossary", "Term", "merged_terms", "term_words"]

MAX_ENTRIES = 10_000
"""Largest number of entries of a glossary."""
MAX_TERM_LENGTH = 100
"""Characters of a term, and of its translation."""

_ENDINGS: Mapping[str, frozenset[str]] = {
    "de": frozenset(("e", "en", "er", "es", "n", "s", "em", "ern", "ens", "nen")),
    "en": frozenset(("s", "es")),
}
"""Endings of inflected words, by source language."""
_INFLECTED_LENGTH = 4
"""Letters that a word must have to be found with another ending."""
_WORD = re.compile(r"\w+", re.UNICODE)


@dataclass(frozen=True, slots=True)
class Entry:
    """A term and its translation."""

    source: str
    """The term."""
    target: str
    """Its translation."""
    inflected: bool = False
    """Whether the last word of the translation may go on, as a plural does."""


@dataclass(frozen=True, slots=True)
class Term:
    """An entry where it was found in a text."""

    entry: Entry
    """The entry."""
    span: Span
    """Its characters in the text."""
    target: str
    """The translation in the case of the term: in capitals for a term in capitals."""

    def place_in(self, text: str) -> Span | None:
        """Return the first place of the translation in a text, in any case; None where it has none."""
        return place_of(self.target, text, inflected=self.entry.inflected)


def place_of(target: str, text: str, *, inflected: bool) -> Span | None:
    """Return the first place of a term in a text by whole words, in any case; the last may go on if `inflected`."""
    before = r"(?<!\w)" if target[:1].isalnum() else ""
    after = r"\w*" if inflected else r"(?!\w)" if target[-1:].isalnum() else ""
    words = r"\s+".join(map(re.escape, target.split()))
    found = re.search(f"{before}{words}{after}", text, re.IGNORECASE)
    return None if found is None else found.span()


def term_words(term: str) -> tuple[str, ...]:
    """Return the words by which a term is found, without their case: terms with the same ones are the same."""
    return tuple(_WORD.findall(term.casefold()))


def merged_terms(glossaries: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the translations by term of several glossaries, of a term in several of them that of the first."""
    found: dict[str, str] = {}
    known: set[tuple[str, ...]] = set()
    for terms in glossaries:
        new = {term: translation for term, translation in terms.items() if term_words(term) not in known}
        found |= new
        known |= set(map(term_words, new))
    return found


class Glossary:
    """Terms with their translations, for one source language."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        """Raises `QueryError` for empty, too long, too many or repeated terms."""
        self._by_first: dict[str, list[tuple[tuple[str, ...], Entry]]] = {}
        count = 0
        known: set[tuple[str, ...]] = set()
        for entry in entries:
            count += 1
            if count > MAX_ENTRIES:
                raise QueryError(f"glossary: at most {MAX_ENTRIES} entries are possible")
            for text in (entry.source, entry.target):
                if len(text) > MAX_TERM_LENGTH:
                    raise QueryError(f"glossary: {text[:20]!r}... is longer than {MAX_TERM_LENGTH} characters")
            words = term_words(entry.source)
            if not words or not any(map(str.isalnum, entry.target)):
                raise QueryError(f"glossary: {entry.source!r}: {entry.target!r} has a side without letters and digits")
            if words in known:
                raise QueryError(f"glossary: the term {entry.source!r} is there twice")
            known.add(words)
            self._by_first.setdefault(words[0], []).append((words, entry))
        for some in self._by_first.values():
            some.sort(key=lambda each: -len(each[0]))
        self._count = count

    @classmethod
    def of(cls, terms: Mapping[str, str]) -> Self:
        """Return a glossary of translations by term; a `*` at the end of one means that its word may go on.

        Raises `QueryError` as the constructor does.
        """
        stripped = ((source.strip(), target.strip()) for source, target in terms.items())
        return cls(Entry(source, target.removesuffix("*"), target.endswith("*")) for source, target in stripped)

    def __len__(self) -> int:
        return self._count

    def terms(self, text: str, language: str) -> list[Term]:
        """Return the terms of a text in that language, in order, none overlapping another; each entry once."""
        if not self._by_first:
            return []
        spans = [found.span() for found in _WORD.finditer(text)]
        words = [text[start:end].casefold() for start, end in spans]
        endings = _ENDINGS.get(language, frozenset())
        found: list[Term] = []
        place = 0
        while place < len(words):
            length, entry = self._longest(text, spans, words, place, endings)
            if entry is not None:
                span = (spans[place][0], spans[place + length - 1][1])
                if all(each.entry is not entry for each in found):
                    found.append(Term(entry, span, _cased(text[slice(*span)], entry)))
            place += length
        return found

    def _longest(
        self, text: str, spans: Sequence[Span], words: Sequence[str], place: int, endings: frozenset[str]
    ) -> tuple[int, Entry | None]:
        """Return the number of words of the longest term at a place, and its entry; one word and None without any."""
        best: tuple[int, Entry | None] = (1, None)
        for exact, stem in _stems(words[place], endings):
            for term, entry in self._by_first.get(stem, ()):
                length = len(term)
                if length < best[0] or (best[1] is not None and length == best[0]) or place + length > len(words):
                    continue
                if length == 1 and not exact and not _inflects(entry.source, text[slice(*spans[place])]):
                    continue
                if length > 1 and not self._matches(term, entry, text, spans, words, place, endings, exact=exact):
                    continue
                best = length, entry
        return best

    def _matches(
        self,
        term: Sequence[str],
        entry: Entry,
        text: str,
        spans: Sequence[Span],
        words: Sequence[str],
        place: int,
        endings: frozenset[str],
        *,
        exact: bool,
    ) -> bool:
        """Return whether a term of several words stands at a place: all but its last as they are, spaces between."""
        last = place + len(term) - 1
        if not exact or tuple(words[place:last]) != tuple(term[:-1]):
            return False
        if any(not _joins(text[spans[at][1] : spans[at + 1][0]]) for at in range(place, last)):
            return False
        if words[last] == term[-1]:
            return True
        stems = {stem for _, stem in _stems(words[last], endings)}
        own = _WORD.findall(entry.source)[-1]
        return term[-1] in stems and _inflects(own, text[slice(*spans[last])])


def _stems(word: str, endings: frozenset[str]) -> list[tuple[bool, str]]:
    """Return a word, and what is left of it without one of the endings; whether it is the word itself."""
    found = [(True, word)]
    for length in range(1, 4):
        if len(word) - length >= _INFLECTED_LENGTH and word[-length:] in endings:
            found.append((False, word[:-length]))
    return found


def _inflects(term: str, word: str) -> bool:
    """Return whether a word may be an inflected form: nouns stay nouns."""
    return term[:1].isupper() == word[:1].isupper()


def _joins(between: str) -> bool:
    return between.isspace() or between in ("-", "'", "’", "/", ".", " & ")


def _cased(found: str, entry: Entry) -> str:
    """Return the translation in capitals where the text has a term in capitals that the glossary does not."""
    capitals = len(found) > 1 and found.isupper() and not entry.source.isupper()
    return entry.target.upper() if capitals else entry.target
