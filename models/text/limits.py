"""Limits of texts: checks and truncation before and after tokenization."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from models.errors import QueryError, TextTooLongError

__all__ = ["Keep", "TextLimit", "checked_ids", "checked_text", "ends", "head", "several", "tail"]

_CHARACTERS_PER_TOKEN = 64
"""Texts of more characters than this times the token limit are refused, or cut, before they are tokenized."""

Items = TypeVar("Items", bound=Sequence[Any])

Keep = Callable[[Any, int], Any]
"""Truncation: which so many items of a text or a list of tokens are kept."""


def head(items: Items, count: int) -> Items:
    """Return the first `count` items."""
    return items[:count]  # type: ignore[return-value]


def tail(items: Items, count: int) -> Items:
    """Return the last `count` items."""
    return items[max(0, len(items) - count) :]  # type: ignore[return-value]


def ends(items: Items, count: int) -> Items:
    """Return the first quarter and the last three of `count` items where there are more.

    Head and tail of a document say more of its class than its middle (Sun et al. 2019, section 5.3.1; the sparse paper
    truncates likewise).
    """
    if len(items) <= count:
        return items
    first = count // 4
    return items[:first] + items[len(items) - (count - first) :]  # type: ignore[operator, no-any-return]


@dataclass(frozen=True, slots=True)
class TextLimit:
    """The longest text that a model accepts, and how longer ones are truncated."""

    max_tokens: int
    """Tokens that the tokenizer adds to each text, such as `[CLS]`, are counted."""
    added_tokens: int = 0
    """Tokens that the tokenizer adds to each text."""
    noun: str = ""
    """What the limit holds for where it is not the text, such as " in a sentence"."""

    @property
    def max_characters(self) -> int:
        """Longest text that is tokenized."""
        return self.max_tokens * _CHARACTERS_PER_TOKEN

    def characters(self, text: str, keep: Keep | None) -> str:
        """Return a text short enough to be tokenized; raises `TextTooLongError` without `keep`, `QueryError`."""
        text = checked_text(text)
        if len(text) <= self.max_characters:
            return text
        if keep is None:
            raise TextTooLongError(len(text), self.max_characters, f"characters{self.noun}")
        return str(keep(text, self.max_characters))

    def left_out(self, text: str, tokens: Sequence[object]) -> int | None:
        """Return the number of tokens of a text beyond the limit; None where there are none.

        `tokens` are those of `characters(text, keep)`. What that has left out is not tokenized: its number of tokens is
        an estimate, from the tokens of as many characters of the rest.
        """
        characters = max(0, len(text) - self.max_characters)
        beyond = max(0, len(tokens) + self.added_tokens - self.max_tokens)
        return beyond + math.ceil(len(tokens) * characters / self.max_characters) or None

    def ids(self, ids: Sequence[int], vocab_size: int) -> tuple[int, ...]:
        """Return token ids, those that the tokenizer adds included; raises `QueryError`, `TextTooLongError`."""
        ids = checked_ids(ids, vocab_size)
        if len(ids) > self.max_tokens:
            raise TextTooLongError(len(ids), self.max_tokens, f"tokens{self.noun}")
        return ids

    def tokens(self, tokens: Items, keep: Keep | None) -> Items:
        """Return tokens within the limit, those that the tokenizer adds left out; raises `TextTooLongError`."""
        room = max(0, self.max_tokens - self.added_tokens)
        if len(tokens) <= room:
            return tokens
        if keep is None:
            raise TextTooLongError(len(tokens) + self.added_tokens, self.max_tokens, f"tokens{self.noun}")
        kept: Items = keep(tokens, room)
        return kept


def checked_ids(ids: Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """Return token ids; raises `QueryError` for one outside the vocabulary."""
    if not all(0 <= each < vocab_size for each in ids):
        raise QueryError(f"token ids must be from 0 to {vocab_size - 1}")
    return tuple(ids)


def checked_text(text: str) -> str:
    """Return the text; raises `QueryError` for one that UTF-8 cannot encode, `TypeError` for another type."""
    try:
        str.encode(text)
    except UnicodeEncodeError:
        raise QueryError("the text holds half of a surrogate pair, which is no character") from None
    return text


def several(texts: Sequence[str]) -> Sequence[str]:
    """Return the texts; raises `TypeError` for one string, whose characters would be taken for texts."""
    if isinstance(texts, str):
        raise TypeError("a list of texts is needed, not one string")
    return texts
