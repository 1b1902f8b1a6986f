"""Tests of token files that are mapped into memory."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from training.data.mapped_tokens import MappedTokens


def test_texts_have_their_tokens() -> None:
    mapped = MappedTokens(iter([[3, 1], [], [70_000, 2, 5]]))
    assert [list(each) for each in mapped] == [[3, 1], [], [70_000, 2, 5]]
    assert (len(mapped), list(mapped[-1]), list(map(list, mapped[1:]))) == (3, [70_000, 2, 5], [[], [70_000, 2, 5]])
    assert list(mapped.tokens) == [3, 1, 70_000, 2, 5]
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
