"""Texts that are read in windows: a part for each window, whose outputs are aggregated.

Shapes: `W` windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from models.backend import Array
from models.errors import QueryError
from models.operations.query import Part
from models.operations.windows import Aggregation

__all__ = ["WindowsQuery", "aggregated", "check_windows", "results_of"]

PartT = TypeVar("PartT", bound=Part)


@dataclass(frozen=True, slots=True)
class WindowsQuery(Generic[PartT]):
    """A checked and tokenized text in windows."""

    text: str
    windows: tuple[PartT, ...]
    aggregation: Aggregation

    @property
    def result_items(self) -> int:
        """Result items of all windows, whose outputs are held together."""
        return sum(window.result_items for window in self.windows)

    def parts(self) -> tuple[PartT, ...]:
        """Return the windows."""
        return self.windows


def check_windows(
    windows: Aggregation | None, overlap: int | None, *, truncate: bool = False, text_pair: str | None = None
) -> None:
    """Raise `QueryError` for parameters that do not fit each other."""
    if windows is None:
        if overlap is not None:
            raise QueryError("an overlap needs windows: mean or max")
        return
    if truncate:
        raise QueryError("give either windows or truncate: in windows, texts are read to their end")
    if text_pair is not None:
        raise QueryError("windows are for single texts, not for pairs")


def aggregated(rows: Sequence[Any], aggregation: Aggregation) -> Array:
    """Return the mean or the maximum `[...]` of numbers or arrays `[W, ...]`, in float64."""
    stacked = np.array(rows, np.float64)
    found: Array = stacked.mean(0) if aggregation == "mean" else stacked.max(0)
    return found


class _Computes(Protocol):
    def run(self, queries: Sequence[Any]) -> list[Any]: ...

    def result(self, query: Any, outputs: Sequence[Any]) -> Any: ...


def results_of(model: _Computes, queries: Sequence[Any]) -> list[Any]:
    """Return the results of queries of any number of parts, computed by the one batch function of a model."""
    parts = [query.parts() for query in queries]
    outputs = iter(model.run([part for some in parts for part in some]))
    return [model.result(query, [next(outputs) for _ in some]) for query, some in zip(queries, parts, strict=True)]
