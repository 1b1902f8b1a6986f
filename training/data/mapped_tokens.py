"""Token ids in a file that is mapped into memory, so that a corpus may be larger than memory."""

import tempfile
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["MappedTokens"]


class MappedTokens(Sequence[NDArray[np.int32]]):
    """The token ids of each text, read-only; of what is not used the operating system keeps nothing in memory.

    The file is temporary, without a name, and in the directory that the environment variable `TMPDIR` names; it takes
    4 bytes a token, and memory 8 bytes a text.
    """

    def __init__(self, texts: Iterable[Sequence[int]]) -> None:
        """Write the texts one after the other; raises `OSError` where the disk is full."""
        ends = array("q", [0])
        with tempfile.TemporaryFile(prefix="softserve-tokens-") as file:
            for text in texts:
                file.write(array("i", text).tobytes())
                ends.append(ends[-1] + len(text))
            file.flush()
            self.tokens: NDArray[np.int32] = (
                np.memmap(file, np.int32, mode="r") if ends[-1] else np.empty(0, dtype=np.int32)
            )
            """All ids, `[tokens]`."""
        self._ends = ends

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
