"""Token ids in a file that is mapped into memory, so that a corpus may be larger than memory."""

import errno
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["MappedTokens"]

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_COUNTED_AT_ONCE = 1 << 20
"""Tokens that `counts` copies at once."""


class MappedTokens(Sequence[NDArray[np.int32]]):
    """The token ids of each text, read-only; pages of the file are loaded when they are read, and can be evicted.

    The file is temporary, without a name, and in the directory that the environment variable `TMPDIR` names; it takes
    4 bytes a token, and memory 8 bytes a text.
    """

    def __init__(self, texts: Iterable[Sequence[int] | NDArray[np.int32]]) -> None:
        """Write the texts one after the other; raises `OSError` naming the directory where the disk is full."""
        ends = array("q", [0])
        with tempfile.TemporaryFile(prefix="softserve-tokens-") as file:
            try:
                for text in texts:
                    file.write(np.asarray(text, np.int32).tobytes())
                    ends.append(ends[-1] + len(text))
                file.flush()
            except OSError as error:
                if error.errno not in _DISK_FULL:
                    raise  # an error of the texts, such as that of a missing file
                where = f"tokens do not fit into {tempfile.gettempdir()}; TMPDIR names another directory"
                raise OSError(error.errno, where) from error
            self.tokens: NDArray[np.int32] = (
                np.memmap(file, np.int32, mode="r") if ends[-1] else np.empty(0, dtype=np.int32)
            )
            """All ids, `[tokens]`."""
        self._ends = ends

    def counts(self, vocab_size: int) -> NDArray[np.int64]:
        """Return how often each id occurs, `[vocab_size]`."""
        counts = np.zeros(vocab_size, np.int64)
        for start in range(0, len(self.tokens), _COUNTED_AT_ONCE):
            counts += np.bincount(self.tokens[start : start + _COUNTED_AT_ONCE], minlength=vocab_size)
        return counts

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> NDArray[np.int32]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[np.int32]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return self.tokens[self._ends[position] : self._ends[position + 1]]
