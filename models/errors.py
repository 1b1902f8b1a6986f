"""The exceptions that this package raises."""

from collections.abc import Iterable

__all__ = [
    "BundleError",
    "ModelError",
    "NativeError",
    "QueryError",
    "TextTooLongError",
    "TooManyPartsError",
    "UnknownModelError",
    "UnsuitableModelError",
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
    """A name or version that no model directory holds; `known` lists the available ones."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.known = tuple(known)
        shown = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"
        super().__init__(f"unknown model {shown!r}; known models: {', '.join(self.known) or 'none'}")


class UnsuitableModelError(UnknownModelError):
    """No model, or not the named one, offers an operation; `known` lists those that do."""

    def __init__(
        self,
        operation: str,
        known: Iterable[str],
        name: str | None = None,
        offers: Iterable[str] = (),
        task: str = "",
    ) -> None:
        """`name` is that of a model of a `task` which `offers` other operations; none where no model was named."""
        self.known, self.offers = tuple(known), tuple(offers)
        suitable = ", ".join(self.known) or "none"
        if name is not None:
            kind, offered = f" ({task})" if task else "", ", ".join(self.offers)
            text = f"the model {name!r}{kind} is for {offered}, not for {operation}; models for {operation}: {suitable}"
        elif self.known:
            text = f"there are several models for {operation}, name one: {suitable}"
        else:
            text = f"there is no model for {operation}"
        ModelError.__init__(self, text)


class NativeError(ModelError, RuntimeError):
    """Native code that a model runs, such as its tokenizer, has failed on an input: the bundle must be changed."""


class QueryError(ModelError, ValueError):
    """An invalid query: the caller must change it."""


class TextTooLongError(QueryError):
    """A text beyond the model's limit."""

    def __init__(self, length: int, limit: int, unit: str = "tokens") -> None:
        self.length, self.limit, self.unit = length, limit, unit
        super().__init__(f"the text has {length} {unit}; the model's limit is {limit}")


class TooManyPartsError(TextTooLongError):
    """A text with more parts than its caller accepts."""


class UnsupportedDeviceError(ModelError, RuntimeError):
    """A requested device or backend that is not available."""
