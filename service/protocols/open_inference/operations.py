"""Operations as tensors: texts, images or token ids in, the outputs of an operation out.

A text model has the outputs of all its operations; those that are asked for decide which are computed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from models.operations.operation import AnyOperation, AnyOutput, OutputKind, Params
from models.operations.query import Query
from models.operations.validation import sentence
from models.tasks.model import AnyModel
from service.engine.caller import Caller
from service.engine.client import Engine, Job
from service.engine.served_model import ServedModel, names_of
from service.protocols.open_inference.tensors import Tensor

__all__ = ["Call", "Spec", "TensorOperation", "of_images", "of_texts", "of_tokens"]

_DATATYPES: Mapping[OutputKind, tuple[str, str]] = {
    "text": ("BYTES", ""),
    "number": ("FP32", "f4"),
    "integer": ("INT64", "i8"),
    "flag": ("BOOL", "?"),
}
"""The datatype of an output, and numpy's."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Name, datatype and shape of a tensor; -1 for a dimension of any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A request to one operation of a model."""

    engine: Engine
    caller: Caller
    served: ServedModel
    inputs: Mapping[str, Tensor]
    parameters: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorOperation:
    """An operation of a model as tensors."""

    operation: AnyOperation
    """The operation that is computed."""
    shown: Sequence[AnyOutput]
    """The outputs that the model has."""
    of_ids: bool = False

    @property
    def outputs(self) -> tuple[Spec, ...]:
        return tuple(
            Spec(each.name, _DATATYPES[each.kind][0], (-1, -1) if each.several else (-1,)) for each in self.shown
        )

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(self.operation.params.model_fields)

    @property
    def classes(self) -> str | None:
        """The output that the classification extension may ask for."""
        return None if self.of_ids else self.operation.classes

    async def run(self, call: Call) -> list[Tensor]:
        """Return the outputs; raises `HTTPException` for wrong parameters, and the errors of `Engine.run`."""
        job = Job(
            operation=self.operation,
            inputs=self._read(call.inputs),
            params=self._params(call.parameters),
            model=names_of(call.served.key)[1],
            caller=call.caller,
        )
        found = await call.engine.run(job)
        results, model = list(found.results), call.served.model
        return [_tensor(each, [each.values(model, result) for result in results]) for each in self.shown]

    def _read(self, inputs: Mapping[str, Tensor]) -> Sequence[object]:
        if self.of_ids:
            return _token_rows(inputs)
        return inputs["text"].texts() if self.operation.reads == "text" else inputs["image"].contents()

    def _params(self, parameters: Mapping[str, object]) -> Params:
        known = {name: value for name, value in parameters.items() if name in self.parameters and value is not None}
        checked: type[Params] = self.operation.params
        try:
            return checked.model_validate(known)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise HTTPException(400, f"parameter {first['loc'][0]} {sentence(first)}") from None


def _tensor(output: AnyOutput, rows: Sequence[Any]) -> Tensor:
    """Return the values of all results: `[B]`, or `[B, k]`, where rows that end earlier are filled up."""
    shape: tuple[int, ...] = (len(rows),)
    values = list(rows)
    if output.several:
        width = max(map(len, rows), default=0)
        shape = (len(rows), width)
        values = [value for row in rows for value in (*row, *[output.filler] * (width - len(row)))]
    datatype, kind = _DATATYPES[output.kind]
    if output.kind == "text":
        return Tensor(output.name, datatype, shape, [each.encode() for each in values])
    with np.errstate(over="ignore"):  # a perplexity may be larger than a float32
        return Tensor(output.name, datatype, shape, np.array(values, kind))


def _token_rows(inputs: Mapping[str, Tensor]) -> list[tuple[int, ...]]:
    """Return the ids of each text, without what follows its length."""
    ids = inputs["input_ids"].integers()
    if ids.ndim != 2:
        raise HTTPException(400, "input_ids must have two dimensions: texts and tokens")
    lengths = np.full(len(ids), ids.shape[1])
    if "lengths" in inputs:
        lengths = inputs["lengths"].integers()
        if lengths.shape != (len(ids),) or not ((lengths >= 0) & (lengths <= ids.shape[1])).all():
            raise HTTPException(400, f"lengths must be {len(ids)} numbers from 0 to {ids.shape[1]}")
    return [tuple(row[:length]) for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)]


def of_texts(model: AnyModel) -> dict[str, TensorOperation]:
    """Return a model's operations on texts, by name."""
    return _of(model, "text")


def of_images(model: AnyModel) -> dict[str, TensorOperation]:
    """Return a model's operations on PNG or JPEG files, by name."""
    return _of(model, "image")


def of_tokens(model: AnyModel) -> dict[str, TensorOperation]:
    """Return a model's operations on token ids, by name."""
    found = {}
    for each in model.operations:
        if (form := each.tokens) is not None:
            on_ids = each.with_query(
                partial(_token_query, form.query),
                params=form.params,
                computed_by=None,
                repeatable=each.repeatable,
                variant="token ids",
            )
            found[each.name] = TensorOperation(operation=on_ids, shown=form.outputs, of_ids=True)
    return found


def _token_query(
    query: Callable[[AnyModel, Sequence[int], Params], Query],
    model: AnyModel,
    ids: Sequence[int],
    params: Params,
    most: int | None,
) -> Query:
    del most
    return query(model, ids, params)


def _of(model: AnyModel, reads: str) -> dict[str, TensorOperation]:
    return {
        each.name: TensorOperation(operation=each, shown=[output for output in each.tensors() if output.told_by(model)])
        for each in model.operations
        if each.reads == reads
    }
