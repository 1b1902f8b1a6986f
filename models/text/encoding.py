"""Texts, and pairs of texts, as an encoder reads them: tokens between two special ones, within a limit.

Shapes: `B` texts, `T` tokens.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from models.backend import Array
from models.batching import split
from models.bundle.contract import Contract
from models.errors import QueryError
from models.text.limits import Keep, TextLimit, ends, head
from models.text.padding import padded
from models.text.tokenization import EncoderTokenizer
from models.text.windows import Windowing, tokens_before

__all__ = ["EncodedText", "EncoderTexts", "Pairs", "TokenPair", "computed_by_length", "encoder_inputs"]

_BATCH_TOKENS, _BATCH_COST = 1024, 16
"""Positions of one run on a CPU, padding included: more are no faster, and each takes some 30 kB. Fixed cost of a run,
in tokens; see `models.batching`."""
_DEVICE_BATCH_TOKENS, _DEVICE_BATCH_COST = 16_384, 4096
"""The same on other devices, whose runs have a large fixed cost: 128 texts of 128 tokens are one. Not measured."""

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")


class Pairs(Contract):
    """How two texts are one sequence: start, first text, `between`, second text, end."""

    between: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    """Ids of the tokens between the texts."""
    segments: bool
    """Whether the graphs take the place of the second text's first token (`second`), from which the other segment
    begins."""


@dataclass(frozen=True, slots=True)
class EncodedText:
    """The tokens of a text, or of two."""

    tokens: tuple[int, ...]
    """The special tokens included."""
    second: int
    """Place of the second text's first token; the number of tokens where there is one text."""
    truncated: int | None = None
    """Tokens that were left out, an estimate for a very long text; None where there are none."""


@dataclass(frozen=True, slots=True)
class TokenPair:
    """The tokens of two texts, joined only where they are computed, so that pairs of the same text share its tokens."""

    before: tuple[int, ...]
    """The start, the first text and the tokens between the texts."""
    second: tuple[int, ...]
    """The second text and the end."""
    truncated: int | None = None
    """Tokens of the first text that were left out, an estimate for a very long text; None where there are none."""

    def __len__(self) -> int:
        return len(self.before) + len(self.second)

    def joined(self) -> EncodedText:
        """Return both texts as one sequence."""
        return EncodedText((*self.before, *self.second), len(self.before), self.truncated)


class EncoderTexts:
    """Makes tokens of texts."""

    def __init__(self, tokenizer: EncoderTokenizer, max_tokens: int, vocab_size: int, pairs: Pairs | None) -> None:
        self.tokenizer = tokenizer
        self.limit = TextLimit(max_tokens, added_tokens=2)
        self._vocab_size, self.pairs = vocab_size, pairs

    def single(self, texts: Sequence[str], *, truncate: bool, keep: Keep = ends) -> list[EncodedText]:
        """Return the tokens of each text; raises `TextTooLongError` where one is too long without `truncate`."""
        kept = keep if truncate else None
        encoded = self.tokenizer.encode_several([self.limit.characters(text, kept) for text in texts])
        found = []
        for text, ids in zip(texts, encoded, strict=True):
            tokens = tuple(self.tokenizer.framed(self.limit.tokens(ids, kept)))
            found.append(EncodedText(tokens, len(tokens), self.limit.left_out(text, ids)))
        return found

    def windowed(self, texts: Sequence[str], overlap: int | None, *, prompt: str = "") -> list[tuple[EncodedText, ...]]:
        """Return the tokens of the windows of each text, which share `overlap` tokens: special tokens, those of
        `prompt`, and the window's own. A text that is not too long has one window.

        Raises `QueryError` for an overlap that is too large, and `TextTooLongError` for a text of too many windows.
        """
        limit = Windowing.of(self.limit, overlap).limit_of(self.limit)
        given = [limit.characters(prompt + text, None) for text in texts]
        if not prompt:
            return [self._windows(ids, 0, overlap) for ids in self.tokenizer.encode_several(given)]
        return [
            self._windows(ids, tokens_before(spans, len(prompt)), overlap)
            for ids, spans in self.tokenizer.encode_with_spans(given)
        ]

    def _windows(self, ids: Sequence[int], before: int, overlap: int | None) -> tuple[EncodedText, ...]:
        """Return the windows of a text, each after the `before` first tokens."""
        limit = replace(self.limit, added_tokens=self.limit.added_tokens + before)
        windowing = Windowing.of(limit, overlap)
        start, rest = ids[:before], windowing.limit_of(limit).tokens(ids[before:], None)
        windows = [tuple(self.tokenizer.framed([*start, *rest[some]])) for some in windowing.slices(len(rest))]
        return tuple(EncodedText(tokens, len(tokens)) for tokens in windows)

    def paired(self, pairs: Sequence[tuple[str, str]], *, truncate: bool) -> list[EncodedText]:
        """Return the tokens of each pair; `truncate` shortens the longer text at its end, or both, as transformers does
        (`longest_first`).

        Raises `QueryError` for a model that reads no pairs, and `TextTooLongError` without `truncate`.
        """
        limit = self._pair_limit
        kept = (lambda items, count: items[:count]) if truncate else None
        texts = [text for pair in pairs for text in pair]
        distinct = list(dict.fromkeys(texts))  # a query that is paired with many documents is tokenized once
        ids = dict(
            zip(
                distinct,
                self.tokenizer.encode_several([limit.characters(text, kept) for text in distinct]),
                strict=True,
            )
        )
        return [self._joined(first, second, ids[first], ids[second], limit, truncate) for first, second in pairs]

    def products(self, texts: Sequence[str], seconds: Sequence[str], *, truncate: bool) -> list[tuple[TokenPair, ...]]:
        """Return the pairs of each text with every one of `seconds`; `truncate` shortens the first text of a pair at
        its end, never the second one, as transformers does (`only_first`).

        Raises `QueryError` for a model that reads no pairs, and `TextTooLongError` without `truncate`, or for a second
        text that leaves no room for a token of the first.
        """
        limit, keep = self._pair_limit, head if truncate else None
        encode = self.tokenizer.encode_several
        firsts = encode([limit.characters(text, keep) for text in texts])
        others = encode([limit.characters(text, None) for text in seconds])
        found = []
        for text, ids in zip(texts, firsts, strict=True):
            befores: dict[int, tuple[int, ...]] = {}  # pairs share the tokens of the first text
            found.append(tuple(self._product(text, ids, second, limit, befores, keep) for second in others))
        return found

    def _product(
        self,
        text: str,
        first: Sequence[int],
        second: Sequence[int],
        limit: TextLimit,
        befores: dict[int, tuple[int, ...]],
        keep: Keep | None,
    ) -> TokenPair:
        assert self.pairs is not None
        limit = replace(limit, added_tokens=limit.added_tokens + len(second))
        kept = limit.tokens(first, keep if limit.added_tokens < limit.max_tokens else None)
        before = befores.setdefault(len(kept), (self.tokenizer.start_id, *kept, *self.pairs.between))
        return TokenPair(before, (*second, self.tokenizer.end_id), limit.left_out(text, first))

    @property
    def _pair_limit(self) -> TextLimit:
        """The longest pair; raises `QueryError` for a model that reads none."""
        if self.pairs is None:
            raise QueryError("this model reads single texts, no pairs")
        return TextLimit(self.limit.max_tokens, added_tokens=2 + len(self.pairs.between), noun=" in a pair")

    def _joined(
        self, one: str, other: str, first: Sequence[int], second: Sequence[int], limit: TextLimit, truncate: bool
    ) -> EncodedText:
        assert self.pairs is not None
        together, room = len(first) + len(second), limit.max_tokens - limit.added_tokens
        if together > room and not truncate:
            limit.tokens([*first, *second], None)  # raises
        left = max(0, together - room)
        if left:
            first, second = _longest_first(first, second, room)
        tokenizer = self.tokenizer
        before = (tokenizer.start_id, *first, *self.pairs.between)
        characters = max(0, len(one) - limit.max_characters) + max(0, len(other) - limit.max_characters)
        left += -(-together * characters // max(1, len(one) + len(other) - characters))
        return EncodedText((*before, *second, tokenizer.end_id), len(before), left or None)

    def given(self, ids: Sequence[int]) -> EncodedText:
        """Return tokens that are given as ids; raises `QueryError`, and its `TextTooLongError`."""
        if not ids:
            raise QueryError("a text has at least one token")
        return EncodedText(self.limit.ids(ids, self._vocab_size), len(ids))

    def sample(self, length: int) -> EncodedText:
        """Return a text of so many tokens, at least one between the special ones."""
        tokens = self.tokenizer.framed([self.tokenizer.unknown_id] * max(1, length - 2))[: self.limit.max_tokens]
        return EncodedText(tuple(tokens), len(tokens))


def _longest_first(first: Sequence[int], second: Sequence[int], room: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return both texts without their ends, so that they fit: the longer one is shortened until it is the shorter."""
    shorter, half = min(len(first), len(second)), room // 2
    if shorter <= half:  # only the longer one is cut
        sizes = [min(len(each), room - shorter) for each in (first, second)]
    else:
        sizes = [room - half, half] if len(first) > len(second) else [half, room - half]
    return first[: sizes[0]], second[: sizes[1]]


def encoder_inputs(texts: Sequence[EncodedText], pairs: Pairs | None) -> dict[str, Array]:
    """Return what graphs read: padded tokens `[B, T]`, lengths `[B]`, and with segments the places of the second texts
    `[B]`."""
    inputs = padded([each.tokens for each in texts])
    if pairs is not None and pairs.segments:
        inputs["second"] = np.array([each.second for each in texts], np.int64)
    return inputs


def computed_by_length(
    parts: Sequence[PartT],
    length: Callable[[PartT], int],
    run: Callable[[Sequence[PartT]], Sequence[ResultT]],
    *,
    on_cpu: bool,
) -> list[ResultT]:
    """Return results in the order of the parts; parts of similar lengths are computed together."""
    lengths = list(map(length, parts))
    order = sorted(range(len(parts)), key=lambda place: -lengths[place])
    most, fixed = (_BATCH_TOKENS, _BATCH_COST) if on_cpu else (_DEVICE_BATCH_TOKENS, _DEVICE_BATCH_COST)
    groups = split([lengths[place] for place in order], fixed=fixed, max_items=most, max_tokens=most)
    found: dict[int, ResultT] = {}
    for group in (order[start:end] for start, end in itertools.pairwise([0, *groups])):
        found |= zip(group, run([parts[place] for place in group]), strict=True)
    return [found[place] for place in range(len(parts))]
