"""Rescores the n-best lists of a file: lists in, ranked lists out in their order, in bounded memory."""

import math
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from models import ModelError
from models.decoding.rescoring import Rescored, Weights, rescored
from models.decoding.word_errors import ListErrors, list_errors
from models.escaping import escaped
from models.operations.rescoring import RescoredHypothesis
from models.tasks.model import AnyModel
from service.offline.asked import Asked
from service.offline.computing import compute_together, prepare
from service.offline.lines import Line
from service.offline.n_best import NBest
from service.offline.options import COMPUTING

__all__ = ["ErrorLog", "ListScores", "RankedList", "TextScore", "log_probabilities", "ranked"]

_GROUP = 256
"""Hypotheses that a call of the model has, of one or several lists; the most that a long list is cut into."""
_MOST_ERRORS = 20
"""Errors that are shown, each a line."""


@dataclass(frozen=True, slots=True)
class TextScore:
    """The score of a hypothesis by the language model."""

    log_probability: float
    """Base e; minus infinity for probability 0, and for a text that the model refuses."""
    truncated: int | None = None
    """Tokens that were left out."""
    error: str | None = None
    """The reason why the text is refused."""


@dataclass(frozen=True, slots=True)
class ListScores:
    """A list, and the score of each hypothesis."""

    given: NBest
    scores: Sequence[TextScore] = ()

    @property
    def log_probabilities(self) -> list[float]:
        """Return the log-probability of each hypothesis."""
        return [each.log_probability for each in self.scores]


def log_probabilities(model: AnyModel, asked: Asked, lists: Iterable[NBest], threads: int) -> Iterator[ListScores]:
    """Yield the lists in their order, with the scores of their hypotheses.

    Hypotheses of a list are computed together, so that they share the computation of common prefixes where the model
    does so. `threads` groups are computed at once, and two more than that are held in memory. Lists with an error
    have no scores.
    """
    pool, coming = ThreadPoolExecutor(threads, COMPUTING), iter(_groups(lists))
    running: deque[Future[list[ListScores]]] = deque()

    def start() -> None:
        running.extend(
            pool.submit(_scored, model, asked, group) for group in islice(coming, threads + 2 - len(running))
        )

    try:
        start()
        while running:
            yield from running.popleft().result()
            start()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # an interrupted command does not wait for native code


def _groups(lists: Iterable[NBest]) -> Iterator[list[NBest]]:
    """Yield consecutive lists of some `_GROUP` hypotheses together; a longer list is alone."""
    group: list[NBest] = []
    count = 0
    for each in lists:
        more = max(1, len(each.hypotheses))
        if group and count + more > _GROUP:
            yield group
            group, count = [], 0
        group.append(each)
        count += more
    if group:
        yield group


def _scored(model: AnyModel, asked: Asked, lists: Sequence[NBest]) -> list[ListScores]:
    lines = [Line(each.number, hypothesis.text) for each in lists for hypothesis in each.hypotheses]
    scores: list[TextScore] = []
    for first in range(0, len(lines), _GROUP):
        scores += _text_scores(model, asked, lines[first : first + _GROUP])
    rest = iter(scores)
    return [ListScores(each, list(islice(rest, len(each.hypotheses)))) for each in lists]


def _text_scores(model: AnyModel, asked: Asked, lines: Sequence[Line]) -> list[TextScore]:
    prepared = prepare(lambda text: asked.query(model, text), lines)
    found: dict[int, object] = dict(prepared.refused)
    if prepared.queries:
        found |= compute_together(model, asked.function_of(model), list(prepared.queries.items()))
    return [_text_score(found[place]) for place in range(len(lines))]


def _text_score(result: object) -> TextScore:
    if isinstance(result, ModelError):
        return TextScore(-math.inf, error=str(result))
    value = float(result.log_probability)  # type: ignore[attr-defined]
    return TextScore(value, getattr(result, "truncated", None))


@dataclass(frozen=True, slots=True)
class RankedList:
    """A list by descending total."""

    given: NBest
    hypotheses: Sequence[Rescored]
    scores: Sequence[TextScore]
    """The score of each hypothesis, by its place in the list as it was given."""

    def errors(self, reference: str) -> ListErrors:
        """Return the word errors of the list."""
        given = self.given.hypotheses
        first = max(range(len(given)), key=lambda place: given[place].score)
        return list_errors(reference, [each.text for each in given], first, self.hypotheses[0].place)

    def records(self) -> list[Mapping[str, object]]:
        """Return the hypotheses as JSON objects, those of the endpoint `/v1/rescore`."""
        return [self._record(each) for each in self.hypotheses]

    def _record(self, each: Rescored) -> Mapping[str, object]:
        score = self.scores[each.place]
        record = RescoredHypothesis.of(each)
        record.truncated = score.truncated
        content = record.model_dump(mode="json")
        return content if score.error is None else {**content, "error": score.error}


def ranked(one: ListScores, weights: Weights) -> RankedList:
    """Return a list without an error by descending total."""
    return RankedList(one.given, rescored(one.given.hypotheses, one.log_probabilities, weights), one.scores)


class ErrorLog:
    """Shows the errors of lists and hypotheses on standard error, the first ones each in a line, and counts."""

    def __init__(self) -> None:
        self.lists = self.hypotheses = 0
        """Lists and hypotheses without an error of reading."""
        self.failed = self.refused = self.impossible = self.cut = 0
        """Lists or lines that cannot be read; hypotheses that the model refuses, that have probability 0, that are cut.
        """
        self._shown = 0

    def count(self, one: ListScores) -> None:
        """Count a list, and show its errors."""
        if one.given.error is not None:
            self.failed += 1
            self._show(f"line {one.given.number}: {one.given.error}")
            return
        self.lists += 1
        self.hypotheses += len(one.scores)
        for place, score in enumerate(one.scores, 1):
            self.cut += score.truncated is not None
            if score.error is not None:
                self.refused += 1
                self._show(f"line {one.given.number}: hypothesis {place} of {one.given.id}: {score.error}")
            elif score.log_probability == -math.inf:
                self.impossible += 1

    def _show(self, message: str) -> None:
        self._shown += 1
        if self._shown <= _MOST_ERRORS:
            print(f"softserve: {escaped(message)}", file=sys.stderr)
        elif self._shown == _MOST_ERRORS + 1:
            print("softserve: there are more errors, which are not shown", file=sys.stderr)

    def finish(self) -> int:
        """Say how many hypotheses and lists are not ranked as others, and why; return the exit status."""
        of = f"of {self.hypotheses:,} hypotheses"
        if self.cut:
            _say(f"{self.cut:,} {of} were cut")
        if self.impossible:
            _say(
                f"{self.impossible:,} {of} have probability 0, as a model with sparse_k gives to all but the most "
                "probable words; they are ranked last, by the score of the first pass"
            )
        if self.refused:
            _say(f"{self.refused:,} {of} were refused by the model; they are ranked as those of probability 0")
        if self.failed:
            _say(f"{self.failed:,} lines or lists could not be read")
        return 1 if self.failed or self.refused else 0


def _say(message: str) -> None:
    print(f"softserve: {message}", file=sys.stderr)
