"""Translation through a third language: sentences, links, terms and confidence of two translations as those of one.

The first model translates a text into the third language, and the second one each sentence of that on its own, so that
it joins no sentences that the first one has apart. Places are spans of characters.
"""

import bisect
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from models.errors import QueryError
from models.tasks.translation_results import GlossaryUse, Link, Translated, TranslatedSentence, Translation
from models.text.glossary import MAX_TERM_LENGTH, Entry, Glossary, Term
from models.text.language_codes import two_letters
from models.text.markup import Markup
from models.text.words import Span

__all__ = ["FirstSentence", "FirstStep", "demanding", "joined", "with_places"]

_ARTICLES = {
    "de": "der die das den dem des ein eine einen einem einer eines",
    "en": "the a an",
    "es": "el la los las un una unos unas",
    "fr": "le la les l un une des du",
    "it": "il lo la i gli le l un uno una",
    "nl": "de het een",
    "pt": "o a os as um uma uns umas",
}
"""Words that are linked with the noun after them, and are no part of a term."""


@dataclass(frozen=True, slots=True)
class FirstSentence:
    """A sentence of a text in the third language."""

    source: Span
    """Characters of the text."""
    target: Span
    """Characters of its translation into the third language."""
    text: str
    """This translation."""
    terms: tuple[Term, ...] = ()
    """The terms of the glossary that the sentence has, at their places in the text."""
    demands: Glossary | None = None
    """What the terms demand of the second translation, by the words of the first one that stand for them."""
    protected: tuple[Span, ...] = ()
    """Characters of `text` that an expression protects in the text."""


@dataclass(frozen=True, slots=True)
class FirstStep:
    """A text that is translated into the third language."""

    translation: Translation
    """The text and its translation into the third language."""
    model: str
    """`name:version` of the model."""
    language: str
    """Code of the third language."""
    markup: Markup
    """The format of the text."""
    sentences: tuple[FirstSentence, ...] | None
    """The sentences; None of a text with markup, which is translated again as a whole."""
    has_glossary: bool = False
    """Whether translations come with the terms of a glossary that the text has."""

    @property
    def text(self) -> str:
        """The text in the third language."""
        return self.translation.translations[0].text


def demanding(
    sentence: FirstSentence, translation: Translation, glossary: Glossary, languages: tuple[str, str]
) -> FirstSentence:
    """Return a sentence with the terms of a glossary that it has, and what they demand of the second translation.

    A term demands it for the words of the first translation that are linked with the term. `languages` are those of the
    text and of the first translation.
    """
    articles = frozenset(_ARTICLES.get(two_letters(languages[1]), "").split())
    (start, end), written = sentence.source, translation.translations[0]
    terms = tuple(
        replace(term, span=(start + term.span[0], start + term.span[1]))
        for term in glossary.terms(translation.text[start:end], languages[0])
    )
    entries = []
    for term in terms:
        words = _counterpart(term.span, written.alignment or (), written.text, articles)
        if words:
            entries.append(Entry(words, term.target, term.entry.inflected))
    return replace(sentence, terms=terms, demands=_first_entries(entries))


def _counterpart(span: Span, links: Iterable[Link], text: str, articles: Container[str]) -> str:
    """Return the longest run of words of a translation that are linked with some characters; nothing without any."""
    linked = {link.target for link in links if _meet(link.source, span)}
    runs: list[Span] = []
    for start, end in sorted(linked):
        word = text[start:end]
        if word.casefold() in articles or not any(map(str.isalnum, word)):
            continue
        if runs and text[runs[-1][1] : start].strip(" -") == "":
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    best = max((text[slice(*run)] for run in runs), key=len, default="")
    return best if len(best) <= MAX_TERM_LENGTH else ""


def _first_entries(entries: Iterable[Entry]) -> Glossary:
    """Return a glossary of entries, of several for the same words the first."""
    kept: list[Entry] = []
    for entry in entries:
        try:
            Glossary([*kept, entry])
        except QueryError:
            continue
        kept.append(entry)
    return Glossary(kept)


def with_places(sentence: FirstSentence, parts: Iterable[str]) -> FirstSentence:
    """Return a sentence with the places of parts of the text in its translation.

    The expressions that found them may depend on words of the source language, and not find them again.
    """
    wanted = sorted((part for part in parts if part in sentence.text), key=len, reverse=True)
    places = re.finditer("|".join(map(re.escape, wanted)), sentence.text) if wanted else ()
    return replace(sentence, protected=tuple(each.span() for each in places))


def joined(first: FirstStep, second: Sequence[Translation], model: str) -> Translation:
    """Return the translation of a text by its first step and the second translations, one for each sentence.

    `model` is the `name:version` of the second model. The i-th translation has the i-th best of each sentence.
    """
    count = max([1, *(len(each.translations) for each in second)])
    results = tuple(_joined(first, second, rank) for rank in range(count))
    confidences = [each.confidence for each in (first.translation, *second)]
    left_out = sum(each.truncated or 0 for each in (first.translation, *second))
    return replace(
        first.translation,
        translations=results,
        low_confidence=first.translation.low_confidence or any(each.low_confidence for each in second),
        confidence=_product(confidences[0], min((each for each in confidences[1:] if each is not None), default=None)),
        truncated=left_out or None,
        via=two_letters(first.language),
        models=(first.model, model),
    )


def _product(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first * second


def _joined(first: FirstStep, second: Sequence[Translation], rank: int) -> Translated:
    chosen = [each.translations[min(rank, len(each.translations) - 1)] for each in second]
    score = sum(each.score for each in chosen)
    if first.sentences is None:
        return Translated(chosen[0].text, score)
    pieces: list[str] = []
    starts: list[int] = []
    end = length = 0
    for sentence, each in zip(first.sentences, chosen, strict=True):
        pieces += [first.text[end : sentence.target[0]], each.text]
        end = sentence.target[1]
        starts.append(length + len(pieces[-2]))
        length = starts[-1] + len(each.text)
    found = list(zip(first.sentences, chosen, starts, strict=True))
    own = first.translation.translations[0]
    all_linked = all(each.alignment is not None for each in chosen)
    return Translated(
        "".join([*pieces, first.text[end:]]),
        score,
        None if own.alignment is None or not all_linked else _links(own.alignment, found),
        None if own.sentences is None else tuple(_rated(*each) for each in zip(own.sentences, found, strict=True)),
        tuple(use for each in found for use in _uses(*each)) if first.has_glossary else None,
    )


def _links(own: Sequence[Link], found: Sequence[tuple[FirstSentence, Translated, int]]) -> tuple[Link, ...]:
    """Return links between words of the text and of the second translation that have a word in common."""
    by_target = sorted(own, key=lambda link: link.target)
    starts = [link.target[0] for link in by_target]
    links: set[Link] = set()
    for sentence, each, start in found:
        offset, end = sentence.target
        first = by_target[bisect.bisect_left(starts, offset) : bisect.bisect_left(starts, end)]
        for link in each.alignment or ():
            span = _moved(link.source, offset)
            links |= {Link(one.source, _moved(link.target, start)) for one in first if _meet(one.target, span)}
    return tuple(sorted(links, key=lambda link: (link.source, link.target)))


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _rated(own: TranslatedSentence, found: tuple[FirstSentence, Translated, int]) -> TranslatedSentence:
    """Return the confidence in a sentence after both steps, and in its words of the second one."""
    _, each, start = found
    rated = [other.confidence for other in each.sentences or () if other.confidence is not None]
    words = (word for other in each.sentences or () for word in other.words)
    return TranslatedSentence(
        own.source,
        (start, start + len(each.text)),
        _product(own.confidence, min(rated, default=None)),
        tuple(replace(word, target=_moved(word.target, start)) for word in words),
    )


def _uses(sentence: FirstSentence, each: Translated, start: int) -> Iterator[GlossaryUse]:
    for term in sentence.terms:
        place = term.place_in(each.text)
        target = None if place is None else _moved(place, start)
        yield GlossaryUse(term.entry.source, term.target, place is not None, term.span, target)


def _moved(span: Span, by: int) -> Span:
    return span[0] + by, span[1] + by
