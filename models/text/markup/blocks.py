"""Which tags of HTML or XML end a block of text, where a request says so."""

from dataclasses import dataclass

__all__ = ["DETECTED", "BlockTags"]


@dataclass(frozen=True, slots=True)
class BlockTags:
    """Names of elements whose tags end a block, or never do; of the others the format decides."""

    splitting: frozenset[str] = frozenset()
    """Elements whose tags end a block."""
    non_splitting: frozenset[str] = frozenset()
    """Elements whose tags are within a block."""
    detect: bool = True
    """Whether the format decides for other elements; else their tags are within a block."""

    def is_inline(self, name: str, detected: bool) -> bool:
        """Return whether a tag is within a block; `detected` is what the format says."""
        if name in self.splitting:
            return False
        return detected or name in self.non_splitting or not self.detect


DETECTED = BlockTags()
"""The format decides for all elements."""
