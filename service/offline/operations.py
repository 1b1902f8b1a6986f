"""The commands' operations: how texts become queries, and results lines.

Records are those of the HTTP endpoints, whose modules import FastAPI: only output in JSON imports them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from models.decoding.beam_search import SearchOptions
from service.offline.outputs import Shown

__all__ = ["Operation", "classify", "next_word", "score", "translate"]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that models offer."""

    name: str
    query: Callable[[Any, str], Any]
    """Makes a query of a model and a text; raises `QueryError`."""
    shown: Callable[[Any], Shown]


def classify(top_k: int, *, truncate: bool) -> Operation:
    """Return the operation that finds the classes of texts."""

    def shown(result: Any) -> Shown:
        best = result.labels[0] if result.labels else None
        outside = {None: "", False: "", True: "out of scope"}[result.out_of_scope]
        cells = ("", "") if best is None else (best.label, best.probability)

        def record() -> dict[str, Any]:
            from service.api.v1.classification import ClassifyResult

            return ClassifyResult.of(result).model_dump(mode="json", exclude_none=True)

        return Shown((*cells, outside, result.text), record)

    def query(model: Any, text: str) -> Any:
        return model.query(text, top_k, truncate=truncate)

    return Operation("classify", query, shown)


def score(*, truncate: bool) -> Operation:
    """Return the operation that scores sentences."""

    def shown(result: Any) -> Shown:
        cells = (result.log_probability, result.perplexity, result.text)

        def record() -> dict[str, Any]:
            from service.api.v1.language_model import ScoreResult

            return ScoreResult.of(result).model_dump(mode="json")

        return Shown(cells, record)

    def query(model: Any, text: str) -> Any:
        return model.score_query(text, truncate=truncate)

    return Operation("score", query, shown)


def next_word(top_k: int, *, truncate: bool) -> Operation:
    """Return the operation that finds the next words of texts."""

    def shown(result: Any) -> Shown:
        words = ", ".join(f"{each.word} {each.probability:.3f}" for each in result.words)

        def record() -> dict[str, Any]:
            from service.api.v1.language_model import NextWordResult

            return NextWordResult.of(result).model_dump(mode="json", exclude={"components"})

        return Shown((words, result.context), record)

    def query(model: Any, text: str) -> Any:
        return model.next_words_query(text, min(top_k, model.vocab_size), truncate=truncate)

    return Operation("next-word", query, shown)


def translate(beam_size: int, target_language: str | None, *, truncate: bool) -> Operation:
    """Return the operation that translates texts."""
    options = SearchOptions()
    asked: list[Any] = []

    def shown(result: Any) -> Shown:
        def record() -> dict[str, Any]:
            from service.api.v1.translation import TranslateResult

            return TranslateResult.told_by(asked[0], result).model_dump(mode="json", exclude_none=True)

        return Shown((result.translations[0].text,), record)

    def query(model: Any, text: str) -> Any:
        asked[:] = [model]
        return model.query(text, beam_size, options=options, truncate=truncate, target_language=target_language)

    return Operation("translate", query, shown)
