"""Checks that every text passes before it is tokenized."""

from collections.abc import Sequence

from models.errors import QueryError

__all__ = ["checked_text", "several"]


def checked_text(text: str) -> str:
    """The text itself; raises `QueryError` where it cannot be encoded, `TypeError` where it is no text."""
    try:
        str.encode(text)
    except UnicodeEncodeError:
        raise QueryError("the text holds half of a surrogate pair, which is no character") from None
    return text


def several(texts: Sequence[str]) -> Sequence[str]:
    """The texts themselves; raises `TypeError` for one string, whose letters would be taken for texts."""
    if isinstance(texts, str):
        raise TypeError("a list of texts is needed, not one string")
    return texts
