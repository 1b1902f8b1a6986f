"""Results of many texts, in this process: similar lengths together, in several threads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from models import ModelError, NativeError, QueryError
from models.batching import split
from models.native import native_errors
from models.operations.query import Query
from models.tasks.model import AnyModel
from service.offline.lines import Line
from service.offline.options import COMPUTING

__all__ = ["FIRST_WINDOW", "WINDOW", "Prepared", "compute", "compute_together", "prepare", "prepare_ahead"]

WINDOW = 4096
"""Texts that are sorted by length together, and written when all are there."""
FIRST_WINDOW = 512
"""Texts of the first window where the next one is prepared meanwhile, so that computing begins soon."""
_PART = 512
"""Texts of one decoding. At its end slots are free, a small part of them in so many texts."""
_MOST_ITEMS, _MOST_TOKENS = 32, 4096
_FIXED_COST = 8
"""The cost of a batch in tokens, besides its own."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Texts that are tokenized."""

    lines: Sequence[Line]
    queries: Mapping[int, Query]
    """The query of each text by its place."""
    refused: Sequence[tuple[int, ModelError]]
    """The places of the other texts, and their errors."""


def prepare(query: Callable[[str], Query], lines: Sequence[Line]) -> Prepared:
    """Make the query of each text."""
    queries: dict[int, Query] = {}
    refused: list[tuple[int, ModelError]] = []
    for place, line in enumerate(lines):
        try:
            queries[place] = _query(query, line)
        except (QueryError, NativeError) as error:
            refused.append((place, error))
    return Prepared(lines, queries, refused)


def _query(query: Callable[[str], Query], line: Line) -> Query:
    if line.error is not None:
        raise QueryError(line.error)
    with native_errors("the preparation of the text"):
        return query(line.text)


def prepare_ahead(query: Callable[[str], Query], windows: Iterator[Sequence[Line]]) -> Iterator[Prepared]:
    """Yield prepared windows of texts, each of which is read and prepared while the one before is computed."""

    def following() -> Prepared | None:
        lines = next(windows, None)
        return None if lines is None else prepare(query, lines)

    pool = ThreadPoolExecutor(1, COMPUTING)
    try:
        coming = pool.submit(following)
        while (found := coming.result()) is not None:
            coming = pool.submit(following)
            yield found
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interrupted command does not wait for native code


def compute(model: AnyModel, function: str, prepared: Prepared, threads: int) -> Iterator[Sequence[tuple[int, object]]]:
    """Yield results as they are computed, each with the place of its text; that of a refused text is its `ModelError`.

    `threads` parts are computed at once; a continuous decoder of the model must be loaded for as many.
    """
    queries = prepared.queries
    if prepared.refused:
        yield prepared.refused
    lengths = {place: sum(part.length for part in each.parts()) for place, each in queries.items()}
    order = sorted(queries, key=lambda place: -lengths[place])
    pool = ThreadPoolExecutor(threads, COMPUTING)
    try:
        groups = _groups(model, order, lengths)
        pairs = ([(place, queries[place]) for place in group] for group in groups)
        yield from pool.map(lambda some: compute_together(model, function, some), pairs)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # as above


def _groups(model: AnyModel, order: Sequence[int], lengths: dict[int, int]) -> Iterator[list[int]]:
    """Yield the places of texts that are computed together, in descending order of length."""
    if model.continuous:
        left = iter(order)
        while group := list(islice(left, _PART)):
            yield group
        return
    start = 0
    ends = split([lengths[place] for place in order], fixed=_FIXED_COST, max_items=_MOST_ITEMS, max_tokens=_MOST_TOKENS)
    for end in ends:
        yield list(order[start:end])
        start = end


def compute_together(model: AnyModel, function: str, queries: Sequence[tuple[int, Query]]) -> list[tuple[int, object]]:
    """Return the results of queries, computed by one call of the model, each with the place of its text."""
    parts = [part for _, query in queries for part in query.parts()]
    return _results(model, queries, model.compute(function, parts) if parts else [])


def _results(
    model: AnyModel, queries: Sequence[tuple[int, Query]], outputs: Sequence[object]
) -> list[tuple[int, object]]:
    left = iter(outputs)
    return [(place, _result(model, query, list(islice(left, len(query.parts()))))) for place, query in queries]


def _result(model: AnyModel, query: Query, outputs: Sequence[object]) -> object:
    try:
        return model.result(query, outputs)
    except NativeError as error:
        return error
