"""Tests of token files that are mapped into memory."""

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from training.data.mapped_tokens import MappedTokens


def test_texts_have_their_tokens() -> None:
    mapped = MappedTokens(iter([[3, 1], [], [70_000, 2, 5]]))
    assert [list(each) for each in mapped] == [[3, 1], [], [70_000, 2, 5]]
    assert (len(mapped), list(mapped[-1]), list(map(list, mapped[1:]))) == (3, [70_000, 2, 5], [[], [70_000, 2, 5]])
    assert list(mapped.tokens) == [3, 1, 70_000, 2, 5]
    assert mapped.counts(70_001).nonzero()[0].tolist() == [1, 2, 3, 5, 70_000]
    with pytest.raises(IndexError):
        mapped[3]


@pytest.mark.parametrize("texts", [[], [[], []]])
def test_without_tokens(texts: list[list[int]]) -> None:
    mapped = MappedTokens(texts)
    assert (len(mapped), len(mapped.tokens)) == (len(texts), 0)


def test_they_are_on_disk_and_leave_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mapped = MappedTokens([range(1000)] * 100)
    assert isinstance(mapped.tokens, np.memmap)
    assert not mapped.tokens.flags.writeable
    assert list(tmp_path.iterdir()) == []
    assert int(mapped.tokens.sum()) == 100 * 499_500


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def texts() -> Iterator[list[int]]:
        yield [1]
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=f"tokens do not fit into {tmp_path}; TMPDIR names another directory"):
        MappedTokens(texts())


def test_an_error_of_the_texts_is_theirs() -> None:
    def texts() -> Iterator[list[int]]:
        yield [1]
        raise FileNotFoundError("dev.txt is missing")

    with pytest.raises(FileNotFoundError, match=r"^dev\.txt is missing"):
        MappedTokens(texts())
