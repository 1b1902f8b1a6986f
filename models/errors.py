"""Everything this package raises on purpose."""

from collections.abc import Iterable

__all__ = [
    "BundleError",
    "ModelError",
    "QueryError",
    "TextTooLongError",
    "UnknownModelError",
    "UnsupportedDeviceError",
]

_MAX_NAME = 80
"""Characters of a name that an error shows."""


class ModelError(Exception):
    """Base of the errors of this package."""


class BundleError(ModelError, ValueError):
    """A bundle that must not be loaded; `problems` names everything that is wrong with it."""

    def __init__(self, where: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{where}: " + "; ".join(self.problems))


class UnknownModelError(ModelError, LookupError):
    """A name or version that no model directory holds; `known` lists what there is."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.known = tuple(known)
        shown = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"
        super().__init__(f"unknown model {shown!r}; known models: {', '.join(self.known) or 'none'}")


class QueryError(ModelError, ValueError):
    """A query that a model cannot answer, through the fault of who asked."""


class TextTooLongError(QueryError):
    """A text beyond the model's limit."""

    def __init__(self, length: int, limit: int, unit: str = "tokens") -> None:
        self.length, self.limit, self.unit = length, limit, unit
        super().__init__(f"the text has {length} {unit}; the model's limit is {limit}")


class UnsupportedDeviceError(ModelError, RuntimeError):
    """A device or backend that was asked for and is not available here."""
