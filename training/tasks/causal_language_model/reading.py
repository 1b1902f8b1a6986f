"""The texts that a causal language model is trained and measured on: lines, or documents of several lines."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from training.data.window_batching import EncodedTexts
from training.tasks.causal_language_model.settings import CausalDataSettings
from training.tasks.language_model.reading import iterate_texts

__all__ = ["documents", "encoded_texts", "joined_tokens", "text_parts"]


def text_parts(data: CausalDataSettings, split: str, data_dir: Path) -> Iterator[str]:
    """Yield the lines of a split without blank ones, with their line feeds where they are parts of documents.

    Some training lines come again in lower case, evenly spread, where the settings ask for it.
    """
    end = "\n" if data.context == "stream" else ""
    changed = 0.0  # lines in lower case that are due
    for line in iterate_texts(data, split, data_dir):
        if not (stripped := line.strip()):
            continue
        yield stripped + end
        if split == "train" and data.context == "sentence":
            changed += data.lower_case
            if changed >= 1:
                changed -= 1
                yield stripped.lower()


def documents(data: CausalDataSettings, split: str, data_dir: Path) -> Iterator[list[str]]:
    """Yield the parts of each text: one, or the lines of a document, each of which ends with a line feed."""
    parts = text_parts(data, split, data_dir)
    if data.context == "sentence":
        yield from ([part] for part in parts)
        return
    starts = None if data.document_start is None else re.compile(data.document_start)
    lines: list[str] = []
    for line in parts:
        if lines and starts is not None and starts.match(line.rstrip("\n")):
            yield lines
            lines = []
        lines.append(line)
    if lines:
        yield lines


def joined_tokens(encode: Callable[[str], Sequence[int]], parts: Sequence[str]) -> list[int]:
    """Return the tokens of a text in parts; no token of a byte-level vocabulary goes on after a line feed.

    Lines are without spaces at their ends, so that the joined text has the same tokens. With a vocabulary that puts a
    space before each text, the tokens are those of the joined text.
    """
    first, *others = parts
    if not others or encode("a\nb") == [*encode("a\n"), *encode("b")]:
        return [token for part in (first, *others) for token in encode(part)]
    return list(encode("".join(parts)))


def encoded_texts(
    data: CausalDataSettings,
    split: str,
    data_dir: Path,
    encode: Callable[[str], Sequence[int]],
    *,
    end_id: int,
    longest: int,
    start_id: int | None = None,
) -> EncodedTexts:
    """Return the tokens of the texts of a split in pieces of `longest` tokens; see `EncodedTexts` for the ids.

    Raises `ValueError` for a split without texts.
    """
    texts = (
        (joined_tokens(encode, parts), sum(len(part.encode()) for part in parts))
        for parts in documents(data, split, data_dir)
    )
    return EncodedTexts(texts, end_id=end_id, longest=longest, start_id=start_id)
