"""The models of Open Inference: their names, their tensors, and how a request to one is run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from models import UnknownModelError
from models.tasks.model import AnyModel
from service.engine.caller import Caller
from service.engine.client import Engine
from service.engine.queue import DEFAULT_URGENCY
from service.engine.served_model import ServedModel
from service.engine.served_models import NotReady, ServedModels
from service.http.auth import require_administrator
from service.protocols.open_inference.operations import (
    Call,
    Spec,
    TensorOperation,
    of_images,
    of_texts,
    of_tokens,
)
from service.protocols.open_inference.tensors import InferRequest, RequestedOutput, Tensor
from service.settings import Settings

__all__ = ["InferenceModel", "check_administrator", "find_model", "inference_models"]

_TOKENS = ".tokens"
"""Ending of the names of models that read token ids."""
_TEXT = (Spec("text", "BYTES", (-1,)),)
_IDS = (Spec("input_ids", "INT64", (-1, -1)), Spec("lengths", "INT64", (-1,)))
_IMAGE = (Spec("image", "BYTES", (-1,)),)
_FORMS: Sequence[tuple[str, Sequence[Spec], Callable[[AnyModel], Mapping[str, TensorOperation]]]] = (
    ("", _TEXT, of_texts),
    ("", _IMAGE, of_images),
    (_TOKENS, _IDS, of_tokens),
)
"""The forms in which clients see a model: ending of its name, inputs, operations."""
_OPTIONAL = frozenset({"lengths"})
_IGNORED = frozenset({"timeout", "priority", "binary_data_output"})
"""Parameters of every request."""
_URGENCIES = 7


@dataclass(frozen=True, slots=True)
class InferenceModel:
    """A served model as clients see it."""

    name: str
    served: ServedModel
    inputs: Sequence[Spec]
    operations: Mapping[str, TensorOperation]

    @property
    def version(self) -> str:
        return str(self.served.manifest.version)

    @property
    def ready(self) -> bool:
        """Whether requests to the model are answered."""
        return self.served.batcher.working

    @property
    def outputs(self) -> list[Spec]:
        """The outputs of all operations, each name once."""
        specs = {spec.name: spec for operation in self.operations.values() for spec in operation.outputs}
        return list(specs.values())

    async def infer(self, engine: Engine, caller: Caller, call: InferRequest) -> list[Tensor]:
        """Return the outputs that are asked for, by default those of the first operation.

        Raises `HTTPException` for inputs, outputs or parameters that the model does not have, and the errors of
        `Engine.run`.
        """
        self._check_inputs(call.inputs)
        chosen = self._chosen(call.outputs)
        if "sequence_id" in call.parameters:
            raise HTTPException(400, "the models have no state: sequences are not supported")
        known = _IGNORED.union(*(operation.parameters for operation in chosen))
        if unknown := sorted(call.parameters.keys() - known):
            raise HTTPException(400, f"unknown parameter {unknown[0]!r}; known: {', '.join(sorted(known))}")
        wanted = {each.name: each for each in call.outputs}
        caller = _hurried(caller, call.parameters)
        found: dict[str, Tensor] = {}
        for operation in chosen:
            parameters = dict(call.parameters)
            if classes := max((wanted[name].classes for name in wanted if name == operation.classes), default=0):
                parameters["top_k"] = classes
            tensors = await operation.run(
                Call(engine=engine, caller=caller, served=self.served, inputs=call.inputs, parameters=parameters)
            )
            names = {spec.name for spec in operation.outputs}
            by_name = {tensor.name: tensor for tensor in tensors if tensor.name in names}
            if classes and operation.classes:
                by_name[operation.classes] = self._classification(by_name["label"], by_name[operation.classes])
            found = {**by_name, **found}
        return [found[name] for name in wanted] if wanted else list(found.values())

    def _check_inputs(self, inputs: Mapping[str, Tensor]) -> None:
        known = [spec.name for spec in self.inputs]
        for name in inputs.keys() - set(known):
            raise HTTPException(400, f"unknown input {name!r}; {self.name} has {', '.join(known)}")
        for spec in self.inputs:
            if spec.name not in inputs and spec.name not in _OPTIONAL:
                raise HTTPException(400, f"input {spec.name!r} is missing")
        if any(0 in tensor.shape for tensor in inputs.values()):
            raise HTTPException(400, "an input is empty")
        if self.inputs is not _IDS and sum(size > 1 for size in next(iter(inputs.values())).shape) > 1:
            raise HTTPException(400, f"input {self.inputs[0].name!r} must have one dimension")

    def _chosen(self, outputs: Sequence[RequestedOutput]) -> list[TensorOperation]:
        """Return the operations that have the outputs, as few as possible."""
        if not outputs:
            return [next(iter(self.operations.values()))]
        chosen: dict[str, TensorOperation] = {}
        for output in outputs:
            having = {
                name: operation
                for name, operation in self.operations.items()
                if output.name in (spec.name for spec in operation.outputs)
            }
            if not having:
                known = ", ".join(spec.name for spec in self.outputs)
                raise HTTPException(400, f"unknown output {output.name!r}; {self.name} has {known}")
            if output.classes and output.name not in (operation.classes for operation in having.values()):
                raise HTTPException(400, f"output {output.name!r} has no classes")
            if not having.keys() & chosen.keys():
                name = next(iter(having))
                chosen[name] = having[name]
        return list(chosen.values())

    def _classification(self, labels: Tensor, probabilities: Tensor) -> Tensor:
        """Return the elements `value:index:label`; empty ones for classes of probability 0."""
        classifier: Any = self.served.model
        index = {label.encode(): number for number, label in enumerate(classifier.labels)}
        values = [
            f"{value:f}:{index[label]}:".encode() + label if label else b""
            for value, label in zip(probabilities.values, labels.values, strict=True)
        ]
        return Tensor(probabilities.name, "BYTES", probabilities.shape, values)


def _hurried(caller: Caller, parameters: Mapping[str, Any]) -> Caller:
    """Return the caller with the deadline and the urgency of a request's parameters, the earlier deadline of both."""
    timeout, priority = parameters.get("timeout", 0), parameters.get("priority", 0)
    for name, value in (("timeout", timeout), ("priority", priority)):
        if type(value) is not int or value < 0:
            raise HTTPException(400, f"parameter {name} must be a whole number from 0 on")
    timeouts = [caller.timeout_ms] if caller.timeout_ms else []
    if timeout:
        timeouts.append(max(1, timeout // 1000))
    urgency = min(priority - 1, _URGENCIES) if priority else DEFAULT_URGENCY
    return replace(caller, timeout_ms=min(timeouts, default=None), urgency=urgency)


def inference_models(served: Iterable[ServedModel]) -> list[InferenceModel]:
    """Return the models that clients see."""
    models = list(served)
    found: dict[tuple[str, int], InferenceModel] = {}
    for ending, inputs, form in _FORMS:
        for each in models:
            if operations := form(each.model):
                model = InferenceModel(each.manifest.name + ending, each, inputs, operations)
                found.setdefault((model.name, each.manifest.version), model)
    return [found[key] for key in sorted(found)]


def check_administrator(settings: Settings, *, is_administrator: bool) -> None:
    """Raise `HTTPException` for a request that may not load or unload models."""
    if settings.admin_keys is None:
        raise HTTPException(
            403, "models are loaded and unloaded by administrators: --admin-keys, with one process only"
        )
    require_administrator(is_administrator)


def find_model(app: FastAPI, name: str, version: str | None = None) -> InferenceModel:
    """Return a model by its name and version, by default its newest; raises `UnknownModelError`, `NotReady`."""
    served_models: ServedModels = app.state.served_models
    names = (name, name.removesuffix(_TOKENS))
    models = inference_models(served for key, served in served_models.served.items() if key[0] in names)
    fitting = [model for model in models if name == model.name and version in (None, "", model.version)]
    if fitting:
        return max(fitting, key=lambda model: model.served.manifest.version)
    if not served_models.served and not served_models.ready:
        raise NotReady
    known = [f"{model.name}:{model.version}" for model in inference_models(served_models.served.values())]
    raise UnknownModelError(name if not version else f"{name}:{version}", known)
