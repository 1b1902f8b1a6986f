"""Open Inference's descriptions of the server and its models, as JSON."""

from collections.abc import Iterable

from fastapi import FastAPI

from service.engine.served_models import ServedModels
from service.protocols.open_inference.operations import Spec
from service.protocols.open_inference.served import InferenceModel, inference_models
from service.protocols.open_inference.statistics import statistics

__all__ = ["EXTENSIONS", "config", "index", "metadata", "model_statistics", "served_models", "server"]

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "statistics",
)
_CONFIG_TYPES = {"BYTES": "TYPE_STRING"}


def server(app: FastAPI) -> dict[str, object]:
    """Return the server's name, version and extensions."""
    return {"name": "softserve", "version": app.version, "extensions": list(EXTENSIONS)}


def served_models(app: FastAPI) -> list[InferenceModel]:
    """Return the models that clients see."""
    served_models: ServedModels = app.state.served_models
    return inference_models(served_models.served.values())


def metadata(app: FastAPI, model: InferenceModel) -> dict[str, object]:
    """Return a model's name, versions and tensors."""
    return {
        "name": model.name,
        "versions": [each.version for each in served_models(app) if each.name == model.name],
        "platform": f"softserve_{model.served.manifest.task}",
        "inputs": [_described(spec) for spec in model.inputs],
        "outputs": [_described(spec) for spec in model.outputs],
    }


def _described(spec: Spec) -> dict[str, object]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def config(model: InferenceModel) -> dict[str, object]:
    """Return a model's configuration as far as it says how requests are made."""
    return {
        "name": model.name,
        "platform": f"softserve_{model.served.manifest.task}",
        "backend": "softserve",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 0,
        "input": [_configured(spec) for spec in model.inputs],
        "output": [_configured(spec) for spec in model.outputs],
        "dynamic_batching": {},
    }


def _configured(spec: Spec) -> dict[str, object]:
    kind = _CONFIG_TYPES.get(spec.datatype, f"TYPE_{spec.datatype}")
    return {"name": spec.name, "data_type": kind, "dims": list(spec.shape)}


def model_statistics(app: FastAPI, models: Iterable[InferenceModel]) -> dict[str, object]:
    """Return the statistics of models."""
    shown = [{**statistics(app.state.metrics, model.served), "name": model.name} for model in models]
    return {"model_stats": shown}


def index(app: FastAPI) -> list[dict[str, str]]:
    """Return the repository's models: those that are served."""
    return [
        {"name": model.name, "version": model.version, "state": "READY", "reason": ""} for model in served_models(app)
    ]
