"""Terms of a glossary as constraints of the search for a translation."""

import functools
from collections.abc import Sequence
from typing import Protocol

from models.decoding.constraints import MAX_PHRASES, Constraints, Phrase, Variant, WordTokens
from models.text.glossary import Term
from models.text.words import Span

__all__ = ["TargetTokens"]

_KEPT = 20_000
"""Terms whose tokens are kept, some 400 bytes each."""
_SPACES = ("Ġ", "▁", " ")
"""How vocabularies spell the space before a word."""
_JOINING = frozenset("([{<\"'`„“‚‘«‹»›¿¡-–—/")
"""Characters after which a word follows without a space."""


class _Tokenizer(Protocol):
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]: ...

    def word(self, token: int) -> str: ...


class TargetTokens:
    """The tokens by which translations spell terms."""

    def __init__(self, tokenizer: _Tokenizer, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._tokens = functools.lru_cache(_KEPT)(self._encoded)

    def constraints(
        self, terms: Sequence[Term], source_tokens: Sequence[Span] | None, *, capitalized: bool
    ) -> Constraints | None:
        """Return the constraints for the first terms of a sentence; None without any.

        `source_tokens` are the characters of the tokens that the encoder reads, where its attention is known. A
        translation that begins with a term begins with a capital letter where it is to be `capitalized`.
        """
        phrases = [self._phrase(term, source_tokens or (), capitalized=capitalized) for term in terms[:MAX_PHRASES]]
        known = tuple(each for each in phrases if each is not None)
        return Constraints(known, self._words) if known else None

    def _phrase(self, term: Term, source_tokens: Sequence[Span], *, capitalized: bool) -> Phrase | None:
        lower = term.target
        upper = lower[:1].upper() + lower[1:]
        differs = capitalized and upper != lower
        variants = self._variants(lower, first=False if differs else None)
        if differs:
            variants += self._variants(upper, first=True)
        if not variants:
            return None
        first, last = term.span
        own = tuple(
            place for place, (start, end) in enumerate(source_tokens) if start < end and first < end and start < last
        )
        return Phrase(tuple(variants), term.entry.inflected, own)

    def _variants(self, text: str, first: bool | None) -> list[Variant]:
        """Return the tokens of a text after a space and without one."""
        spaced, attached = self._tokens(text)
        found = [Variant(spaced, first=first)] if spaced else []
        return [*found, Variant(attached, attached=True, first=first)] if attached else found

    def _encoded(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tokens of a text after a space, and those without one, which may be none."""
        spaced, attached, opening = self._tokenizer.encode_batch([text, f"({text}", "("])
        same = bool(opening) and attached[: len(opening)] == opening
        return tuple(spaced), tuple(attached[len(opening) :]) if same else ()

    @functools.cached_property
    def _words(self) -> WordTokens:
        texts = self._tokenizer.decode_batch([[token] for token in range(self._vocab_size)])
        spaced = [self._spelt(token).startswith(_SPACES) for token in range(self._vocab_size)]
        continues = [not space and text[:1].isalnum() for space, text in zip(spaced, texts, strict=True)]
        return WordTokens(
            continues=bytes(continues),
            opens=bytes(text[-1:] in _JOINING for text in texts),
            blank=bytes(not any(map(str.isalnum, text)) for text in texts),
        )

    def _spelt(self, token: int) -> str:
        try:
            return self._tokenizer.word(token).strip(" ")
        except ValueError:  # a network may have more tokens than the vocabulary spells
            return ""
