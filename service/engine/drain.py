"""How fast a queue drains, measured: what `Retry-After` says."""

__all__ = ["DrainRate"]

_MEMORY = 0.9
"""What a run weighs against the one after it."""


class DrainRate:
    """Tokens that a model finishes in a second of work, the latest runs weighing most."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0

    def record(self, tokens: int, seconds: float) -> None:
        """A run that finished entries of so many tokens."""
        self._tokens = _MEMORY * self._tokens + tokens
        self._seconds = _MEMORY * self._seconds + seconds

    def seconds(self, tokens: int) -> float:
        """How long so many tokens take; 0 before anything was measured."""
        return tokens * self._seconds / self._tokens if self._tokens else 0.0
