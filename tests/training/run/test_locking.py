"""Tests of locks on files."""

from pathlib import Path

import pytest

from training.run.locking import EXCLUSIVE_NOW, lock, only_session


def test_a_lock_ends_with_its_file(tmp_path: Path) -> None:
    with lock(tmp_path / "lock", EXCLUSIVE_NOW), pytest.raises(BlockingIOError):
        lock(tmp_path / "lock", EXCLUSIVE_NOW)
    lock(tmp_path / "lock", EXCLUSIVE_NOW).close()


def test_a_session_that_fails_leaves_no_lock(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError), only_session(tmp_path / "runs" / "toy"):
        raise FloatingPointError
    assert list((tmp_path / "runs").iterdir()) == []
    with only_session(tmp_path / "runs" / "toy"), pytest.raises(ValueError, match="another process trains in"):
        only_session(tmp_path / "runs" / "toy").__enter__()
