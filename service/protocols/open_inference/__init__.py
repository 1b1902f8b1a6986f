"""The Open Inference Protocol, version 2, over HTTP (clients: `tritonclient.http`, KServe)."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from service.api import admin
from service.api.answer import INLINE_ITEMS, ChunkedResponse
from service.api.body import read_body, reserve_body
from service.api.requests import server_timing
from service.auth import require_administrator
from service.engine.registry import Registry
from service.engine.resources import Resources
from service.errors import Failure
from service.protocols.fields import json_response
from service.protocols.open_inference.compression import chosen_encoding, compressed, decompressed
from service.protocols.open_inference.operations import Spec
from service.protocols.open_inference.served import InferenceModel, find_model, inference_models
from service.protocols.open_inference.statistics import statistics
from service.protocols.open_inference.tensors import encode_answer, parse_request
from service.protocols.protocol import Protocol

__all__ = ["PROTOCOL"]

_EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "statistics",
)
_JSON_LENGTH = "Inference-Header-Content-Length"
_CONFIG_TYPES = {"BYTES": "TYPE_STRING"}

router = APIRouter()


async def server(request: Request) -> Response:
    """Answer `GET /v2`."""
    content = {"name": "softserve", "version": request.app.version, "extensions": _EXTENSIONS}
    return await json_response(request, lambda: content)


async def live(request: Request) -> Response:
    """Answer `GET /v2/health/live`."""
    return await json_response(request, lambda: {"live": True})


async def ready(request: Request) -> Response:
    """Answer `GET /v2/health/ready`: 200 once every configured model is ready."""
    registry: Registry = request.app.state.registry
    if not registry.ready:
        raise HTTPException(503, "models are being loaded, or one has failed", {"Retry-After": "1"})
    return await json_response(request, lambda: {"ready": True})


async def models(request: Request) -> Response:
    """Answer `GET /v2/models`."""
    names = sorted({model.name for model in _models(request)})
    return await json_response(request, lambda: {"models": names})


def _models(request: Request) -> list[InferenceModel]:
    registry: Registry = request.app.state.registry
    return inference_models(registry.served.values())


def _found(request: Request) -> InferenceModel:
    return find_model(request, request.path_params["model"], request.path_params.get("version"))


async def metadata(request: Request) -> Response:
    """Answer `GET /v2/models/{model}`: name, versions and tensors."""
    model = _found(request)
    content = {
        "name": model.name,
        "versions": [each.version for each in _models(request) if each.name == model.name],
        "platform": f"softserve_{model.served.manifest.task}",
        "inputs": [_described(spec) for spec in model.inputs],
        "outputs": [_described(spec) for spec in model.outputs],
    }
    return await json_response(request, lambda: content)


def _described(spec: Spec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


async def model_ready(request: Request) -> Response:
    """Answer `GET /v2/models/{model}/ready`: 200 where requests to the model are answered."""
    model = _found(request)
    if model.served.batcher.failure is not None:
        raise HTTPException(503, "the model's engine has failed")
    return await json_response(request, lambda: {"name": model.name, "ready": True})


async def config(request: Request) -> Response:
    """Answer `GET /v2/models/{model}/config` as far as it says how requests are made."""
    model = _found(request)
    content = {
        "name": model.name,
        "platform": f"softserve_{model.served.manifest.task}",
        "backend": "softserve",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 0,
        "input": [_configured(spec) for spec in model.inputs],
        "output": [_configured(spec) for spec in model.outputs],
        "dynamic_batching": {},
    }
    return await json_response(request, lambda: content)


def _configured(spec: Spec) -> dict[str, Any]:
    kind = _CONFIG_TYPES.get(spec.datatype, f"TYPE_{spec.datatype}")
    return {"name": spec.name, "data_type": kind, "dims": spec.shape}


async def stats(request: Request) -> Response:
    """Answer `GET /v2/models/stats` and `GET /v2/models/{model}/stats`."""
    chosen = [_found(request)] if "model" in request.path_params else _models(request)
    shown = [{**statistics(request.app.state.metrics, model.served), "name": model.name} for model in chosen]
    return await json_response(request, lambda: {"model_stats": shown})


async def infer(request: Request) -> Response:
    """Answer `POST /v2/models/{model}/infer`."""
    model = _found(request)
    content = await _content(request)
    call = parse_request(content, request.headers.get(_JSON_LENGTH))
    del content
    tensors = await model.infer(request, call)
    head = {"model_name": model.name, "model_version": model.version, **({"id": call.id} if call.id else {})}
    encoding = chosen_encoding(request.headers.get("accept-encoding", ""))

    def encoded() -> tuple[bytes, dict[str, str]]:
        body, json_length = encode_answer(head, tensors, call)
        headers = {"Content-Type": "application/json"}
        if json_length is not None:
            headers = {"Content-Type": "application/octet-stream", _JSON_LENGTH: str(json_length)}
        if encoding is not None:
            body, headers["Content-Encoding"] = compressed(body, encoding), encoding
        return body, headers

    if sum(len(tensor.values) for tensor in tensors) <= INLINE_ITEMS:
        body, headers = encoded()
    else:
        resources: Resources = request.app.state.resources
        body, headers = await asyncio.get_running_loop().run_in_executor(resources.encoder, encoded)
    return ChunkedResponse([body], {**headers, **server_timing(request)})


async def _content(request: Request) -> bytes:
    """Return the body, decompressed; raises the errors of `read_body`, `reserve_body` and `decompressed`."""
    content = await read_body(request)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return content
    most = request.app.state.settings.max_body_bytes
    await reserve_body(request, most)  # what it becomes is known only once it is decompressed
    resources: Resources = request.app.state.resources
    return await asyncio.get_running_loop().run_in_executor(resources.encoder, decompressed, content, encoding, most)


async def index(request: Request) -> Response:
    """Answer `POST /v2/repository/index`: the models that are served."""
    await read_body(request)
    shown = [
        {"name": model.name, "version": model.version, "state": "READY", "reason": ""} for model in _models(request)
    ]
    return await json_response(request, lambda: shown)


async def load(request: Request) -> Response:
    """Answer `POST /v2/repository/models/{model}/load`; needs an administrator's key."""
    await _administrator(request)
    await admin.load(request.path_params["model"], request)
    return await json_response(request, dict)


async def unload(request: Request) -> Response:
    """Answer `POST /v2/repository/models/{model}/unload`; needs an administrator's key."""
    await _administrator(request)
    await admin.unload(request.path_params["model"], request)
    return await json_response(request, dict)


async def _administrator(request: Request) -> None:
    if request.app.state.settings.admin_keys is None:
        raise HTTPException(
            403, "models are loaded and unloaded by administrators: --admin-keys, with one process only"
        )
    await require_administrator(request)
    await read_body(request)


async def unsupported(request: Request) -> Response:
    """Answer what this server does not do."""
    raise HTTPException(501, f"{request.url.path.removeprefix('/')} is not supported by this server")


def _error(failure: Failure) -> Response:
    return JSONResponse({"error": failure.detail}, failure.status, failure.headers)


_MODEL = "/v2/models/{model}"
_OF_MODELS: Mapping[str, Any] = {"": metadata, "/ready": model_ready, "/config": config, "/stats": stats}
_GET: Mapping[str, Any] = {
    "/v2": server,
    "/v2/health/live": live,
    "/v2/health/ready": ready,
    "/v2/models": models,
    "/v2/models/stats": stats,
    **{_MODEL + ending: function for ending, function in _OF_MODELS.items()},
    **{f"{_MODEL}/versions/{{version}}{ending}": function for ending, function in _OF_MODELS.items()},
}
_POST: Mapping[str, Any] = {
    f"{_MODEL}/infer": infer,
    f"{_MODEL}/versions/{{version}}/infer": infer,
    "/v2/repository/index": index,
    "/v2/repository/models/{model}/load": load,
    "/v2/repository/models/{model}/unload": unload,
}
_UNSUPPORTED = ("trace/setting", "logging", "systemsharedmemory/{rest:path}", "cudasharedmemory/{rest:path}")

for method, handlers in (("GET", _GET), ("POST", _POST)):
    for path, function in handlers.items():
        router.add_route(path, function, methods=[method])
for path in (*_UNSUPPORTED, f"{_MODEL.removeprefix('/v2/')}/trace/setting"):
    router.add_route(f"/v2/{path}", unsupported, methods=["GET", "POST"])

PROTOCOL = Protocol(
    router=router,
    prefixes=("/v2",),
    error=_error,
    open_paths=(r"/v2/health/(live|ready)", r"/v2/models/[^/]+(/versions/[^/]+)?/ready"),
)
