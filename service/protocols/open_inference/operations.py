"""What models of Open Inference take and give: texts, and token ids where a model has no state.

An operation names the tensors of a model's results. A text model has the outputs of all operations of its model; those
that are asked for decide which are computed.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from fastapi import Request
from starlette.exceptions import HTTPException

from models.decoding.beam_search import SearchOptions
from models.tasks.text_classification import Classifier
from service.api.endpoint import answer
from service.engine.served_model import ServedModel, names_of
from service.protocols.classifying import tells_out_of_scope
from service.protocols.open_inference.tensors import Tensor

__all__ = ["IMAGE_OPERATIONS", "OPERATIONS", "TOKEN_OPERATIONS", "Call", "Operation", "Spec"]

_BEAM_SIZE = 5


@dataclass(frozen=True, slots=True)
class Spec:
    """Name, datatype and shape of a tensor; -1 for a dimension of any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A request to one operation of a model."""

    request: Request
    served: ServedModel
    inputs: Mapping[str, Tensor]
    parameters: Mapping[str, Any]
    timeout_ms: int | None
    priority: str | None

    def whole(self, name: str, default: int | None, least: int = 1) -> int | None:
        """Return a parameter that is a whole number, by default and for null another; raises `HTTPException`."""
        value = self.parameters.get(name)
        if value is None:
            return default
        if type(value) is not int or value < least:
            raise HTTPException(400, f"parameter {name} must be a whole number from {least} on")
        return value

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false; raises `HTTPException` where it is neither."""
        value = self.parameters.get(name, False)
        if not isinstance(value, bool):
            raise HTTPException(400, f"parameter {name} must be true or false")
        return value

    async def answered(
        self, operation: str, inputs: Sequence[Any], query: Callable[[Any, Any], Any], **bounds: Any
    ) -> Any:
        """Return the results of the model; raises the errors of `answer`."""
        found = await answer(
            self.request,
            operation,
            inputs,
            query,
            lambda result: result,
            model=names_of(self.served.key)[1],
            timeout_ms=self.timeout_ms,
            priority=self.priority,
            **bounds,
        )
        return list(found.results)

    def texts(self) -> list[str]:
        """Return the input `text`."""
        return self.inputs["text"].texts()


Run = Callable[[Call], Awaitable[list[Tensor]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """An operation of a model as tensors."""

    outputs: tuple[Spec, ...]
    parameters: frozenset[str]
    run: Run
    classes: str | None = None
    """The output that the classification extension may ask for."""
    told_by: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    """Outputs that not all models have, and whether a model has them."""

    def of(self, model: Any) -> "Operation":
        """Return the operation with the outputs that a model has."""
        missing = {name for name, told in self.told_by.items() if not told(model)}
        return replace(self, outputs=tuple(spec for spec in self.outputs if spec.name not in missing))


def _numbers(name: str, datatype: str, kind: str, values: Sequence[Any]) -> Tensor:
    return Tensor(name, datatype, (len(values),), np.array(values, kind))


def _texts(name: str, values: Sequence[str]) -> Tensor:
    return Tensor(name, "BYTES", (len(values),), [each.encode() for each in values])


def _ranked(name: str, probability: str, rows: Sequence[Sequence[tuple[str, float]]]) -> list[Tensor]:
    """Return names and probabilities, `[B, k]`; rows that end earlier are filled up with empty names and 0."""
    width = max(map(len, rows), default=0)
    filled = [[*row, *[("", 0.0)] * (width - len(row))] for row in rows]
    shape = (len(rows), width)
    values = np.array([[value for _, value in row] for row in filled], np.float32).reshape(-1)
    names = [each.encode() for row in filled for each, _ in row]
    return [Tensor(name, "BYTES", shape, names), Tensor(probability, "FP32", shape, values)]


async def _classify(call: Call) -> list[Tensor]:
    top_k, truncate = call.whole("top_k", 5), call.flag("truncate")
    results = await call.answered(
        "classify",
        call.texts(),
        lambda model, text: model.query(text, top_k, truncate=truncate),
        items_per_input=lambda model: min(top_k or 1, len(model.labels)),
    )
    return _classes(results)


def _classes(results: Sequence[Any]) -> list[Tensor]:
    rows = [[(each.label, each.probability) for each in result.labels] for result in results]
    outside = [bool(result.out_of_scope) for result in results]
    return [*_ranked("label", "probability", rows), _numbers("out_of_scope", "BOOL", "?", outside)]


async def _next_word(call: Call) -> list[Tensor]:
    top_k, truncate = call.whole("top_k", 10), call.flag("truncate")
    results = await call.answered(
        "next-word",
        call.texts(),
        lambda model, text: model.next_words_query(text, top_k, truncate=truncate),
        items_per_input=lambda model: top_k,
    )
    rows = [[(each.word, each.probability) for each in result.words] for result in results]
    entropy = [result.entropy for result in results]
    return [*_ranked("word", "probability", rows), _numbers("entropy", "FP32", "f4", entropy)]


async def _score(call: Call) -> list[Tensor]:
    truncate = call.flag("truncate")
    results = await call.answered("score", call.texts(), lambda model, text: model.score_query(text, truncate=truncate))
    with np.errstate(over="ignore"):  # a perplexity may be larger than a float32
        perplexity = _numbers("perplexity", "FP32", "f4", [each.perplexity for each in results])
    return [_numbers("log_probability", "FP32", "f4", [each.log_probability for each in results]), perplexity]


async def _translate(call: Call) -> list[Tensor]:
    language, truncate = call.parameters.get("target_language"), call.flag("truncate")
    beam_size, most = call.whole("beam_size", _BEAM_SIZE), call.request.app.state.settings.max_queue_items
    if not isinstance(language, str | None):
        raise HTTPException(400, "parameter target_language must be a text")
    results = await call.answered(
        "translate",
        call.texts(),
        lambda model, text: model.query(
            text, beam_size, truncate=truncate, max_sentences=most, target_language=language
        ),
    )
    best = [each.translations[0] for each in results]
    return [
        _texts("translation", [each.text for each in best]),
        _numbers("score", "FP32", "f4", [each.score for each in best]),
        _numbers("low_confidence", "BOOL", "?", [each.low_confidence for each in results]),
    ]


async def _generate(call: Call) -> list[Tensor]:
    beam_size, truncate = call.whole("beam_size", _BEAM_SIZE), call.flag("truncate")
    most, options = call.whole("max_output_tokens", None), SearchOptions()
    results = await call.answered(
        "generate",
        call.texts(),
        lambda model, text: model.query(text, beam_size, options=options, max_output_tokens=most, truncate=truncate),
    )
    best = [each.outputs[0] for each in results]
    return [
        _texts("output", [each.text for each in best]),
        _numbers("score", "FP32", "f4", [each.score for each in best]),
    ]


async def _classify_images(call: Call) -> list[Tensor]:
    top_k = call.whole("top_k", 5)
    results = await call.answered(
        "classify",
        call.inputs["image"].contents(),
        lambda model, image: model.query(image, top_k),
        items_per_input=lambda model: min(top_k or 1, len(model.labels)),
        reads="image",
    )
    return _classes(results)


_CLASSES = (
    Spec("label", "BYTES", (-1, -1)),
    Spec("probability", "FP32", (-1, -1)),
    Spec("out_of_scope", "BOOL", (-1,)),
)

IMAGE_OPERATIONS: Mapping[str, Operation] = {
    "classify": Operation(
        outputs=_CLASSES,
        parameters=frozenset({"top_k"}),
        run=_classify_images,
        classes="probability",
        told_by={"out_of_scope": tells_out_of_scope},
    ),
}
"""The operations of models that read images: PNG or JPEG files."""

OPERATIONS: Mapping[str, Operation] = {
    "classify": Operation(
        outputs=_CLASSES,
        parameters=frozenset({"top_k", "truncate"}),
        run=_classify,
        classes="probability",
        told_by={"out_of_scope": tells_out_of_scope},
    ),
    "next-word": Operation(
        outputs=(
            Spec("word", "BYTES", (-1, -1)),
            Spec("probability", "FP32", (-1, -1)),
            Spec("entropy", "FP32", (-1,)),
        ),
        parameters=frozenset({"top_k", "truncate"}),
        run=_next_word,
    ),
    "score": Operation(
        outputs=(Spec("log_probability", "FP32", (-1,)), Spec("perplexity", "FP32", (-1,))),
        parameters=frozenset({"truncate"}),
        run=_score,
    ),
    "translate": Operation(
        outputs=(
            Spec("translation", "BYTES", (-1,)),
            Spec("score", "FP32", (-1,)),
            Spec("low_confidence", "BOOL", (-1,)),
        ),
        parameters=frozenset({"beam_size", "truncate", "target_language"}),
        run=_translate,
    ),
    "generate": Operation(
        outputs=(Spec("output", "BYTES", (-1,)), Spec("score", "FP32", (-1,))),
        parameters=frozenset({"beam_size", "truncate", "max_output_tokens"}),
        run=_generate,
    ),
}
"""The operations of models that read texts."""


def _token_rows(call: Call) -> list[tuple[int, ...]]:
    """Return the ids of each text, without what follows its length."""
    ids = call.inputs["input_ids"].integers()
    if ids.ndim != 2:
        raise HTTPException(400, "input_ids must have two dimensions: texts and tokens")
    lengths = np.full(len(ids), ids.shape[1])
    if "lengths" in call.inputs:
        lengths = call.inputs["lengths"].integers()
        if lengths.shape != (len(ids),) or not ((lengths >= 0) & (lengths <= ids.shape[1])).all():
            raise HTTPException(400, f"lengths must be {len(ids)} numbers from 0 to {ids.shape[1]}")
    return [tuple(row[:length]) for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)]


async def _classify_tokens(call: Call) -> list[Tensor]:
    top_k, classifier = call.whole("top_k", 5), call.served.model
    assert isinstance(classifier, Classifier)
    labels = {label: index for index, label in enumerate(classifier.labels)}
    results = await call.answered(
        "classify",
        _token_rows(call),
        lambda model, ids: model.token_query(ids, top_k),
        items_per_input=lambda model: min(top_k or 1, len(model.labels)),
    )
    width = max((len(each.labels) for each in results), default=0)
    values = np.full((len(results), width), -math.inf, np.float32)
    classes = np.full((len(results), width), -1, np.int64)
    for row, result in enumerate(results):
        values[row, : len(result.labels)] = [each.log_probability for each in result.labels]
        classes[row, : len(result.labels)] = [labels[each.label] for each in result.labels]
    return [
        Tensor("log_probabilities", "FP32", values.shape, values.reshape(-1)),
        Tensor("classes", "INT64", classes.shape, classes.reshape(-1)),
    ]


async def _score_tokens(call: Call) -> list[Tensor]:
    results = await call.answered("score", _token_rows(call), lambda model, ids: model.score_token_query(ids))
    width = max((len(each.tokens) for each in results), default=0)
    values = np.zeros((len(results), width), np.float32)
    for row, result in enumerate(results):
        values[row, : len(result.tokens)] = [each.log_probability for each in result.tokens]
    return [Tensor("log_probabilities", "FP32", values.shape, values.reshape(-1))]


TOKEN_OPERATIONS: Mapping[str, Operation] = {
    "classify": Operation(
        outputs=(Spec("log_probabilities", "FP32", (-1, -1)), Spec("classes", "INT64", (-1, -1))),
        parameters=frozenset({"top_k"}),
        run=_classify_tokens,
    ),
    "score": Operation(
        outputs=(Spec("log_probabilities", "FP32", (-1, -1)),),
        parameters=frozenset(),
        run=_score_tokens,
    ),
}
"""The operations of models that read token ids. Log-probabilities of `score` are those of each token and of the end."""
