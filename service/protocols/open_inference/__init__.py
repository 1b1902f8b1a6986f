"""The Open Inference Protocol, version 2, over HTTP (clients: `tritonclient.http`, KServe)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from service.engine.administration import Unload
from service.engine.resources import Resources
from service.engine.served_models import ServedModels
from service.http import admin
from service.http.answer import INLINE_ITEMS, ChunkedResponse
from service.http.auth import identity_of
from service.http.body import read_body
from service.http.errors import Failure
from service.http.requests import caller_of, engine_of, server_timing
from service.protocols.fields import json_response
from service.protocols.open_inference import descriptions
from service.protocols.open_inference.compression import Decompressor, chosen_encoding, compressed
from service.protocols.open_inference.served import InferenceModel, check_administrator, find_model
from service.protocols.open_inference.tensors import INLINE_BYTES, InferRequest, encode_answer, parse_request
from service.protocols.protocol import Protocol
from service.settings import Settings

__all__ = ["PROTOCOL"]

_JSON_LENGTH = "Inference-Header-Content-Length"

router = APIRouter()


async def server(request: Request) -> Response:
    """Answer `GET /v2`."""
    return await json_response(request, lambda: descriptions.server(request.app))


async def live(request: Request) -> Response:
    """Answer `GET /v2/health/live`."""
    return await json_response(request, lambda: {"live": True})


async def ready(request: Request) -> Response:
    """Answer `GET /v2/health/ready`: 200 once every configured model is ready."""
    served_models: ServedModels = request.app.state.served_models
    if served_models.obstacle is not None:
        raise HTTPException(503, served_models.obstacle, {"Retry-After": "1"})
    return await json_response(request, lambda: {"ready": True})


async def models(request: Request) -> Response:
    """Answer `GET /v2/models`."""
    names = sorted({model.name for model in descriptions.served_models(request.app)})
    return await json_response(request, lambda: {"models": names})


def _found(request: Request) -> InferenceModel:
    return find_model(request.app, request.path_params["model"], request.path_params.get("version"))


async def metadata(request: Request) -> Response:
    """Answer `GET /v2/models/{model}`: name, versions and tensors."""
    content = descriptions.metadata(request.app, _found(request))
    return await json_response(request, lambda: content)


async def model_ready(request: Request) -> Response:
    """Answer `GET /v2/models/{model}/ready`: 200 where requests to the model are answered."""
    model = _found(request)
    if not model.ready:
        raise HTTPException(503, "the model's engine has failed")
    return await json_response(request, lambda: {"name": model.name, "ready": True})


async def config(request: Request) -> Response:
    """Answer `GET /v2/models/{model}/config` as far as it says how requests are made."""
    content = descriptions.config(_found(request))
    return await json_response(request, lambda: content)


async def stats(request: Request) -> Response:
    """Answer `GET /v2/models/stats` and `GET /v2/models/{model}/stats`."""
    chosen = [_found(request)] if "model" in request.path_params else descriptions.served_models(request.app)
    return await json_response(request, lambda: descriptions.model_statistics(request.app, chosen))


async def infer(request: Request) -> Response:
    """Answer `POST /v2/models/{model}/infer`."""
    model = _found(request)
    content = await _content(request)
    call = await _parsed(request, content)
    del content
    tensors = await model.infer(engine_of(request), caller_of(request), call)
    head = {"model_name": model.name, "model_version": model.version, **({"id": call.id} if call.id else {})}
    encoding = chosen_encoding(request.headers.get("accept-encoding", ""))

    def encoded() -> tuple[bytes, dict[str, str]]:
        body, json_length = encode_answer(head, tensors, call)
        headers = {"Content-Type": "application/json", "Vary": "Accept-Encoding"}
        if json_length is not None:
            headers |= {"Content-Type": "application/octet-stream", _JSON_LENGTH: str(json_length)}
        if encoding is not None:
            body, headers["Content-Encoding"] = compressed(body, encoding), encoding
        return body, headers

    if sum(len(tensor.values) for tensor in tensors) <= INLINE_ITEMS:
        body, headers = encoded()
    else:
        resources: Resources = request.app.state.resources
        body, headers = await asyncio.get_running_loop().run_in_executor(resources.encoder, encoded)
    return ChunkedResponse([body], {**headers, **server_timing(request)})


async def _parsed(request: Request, content: bytes) -> InferRequest:
    """Return the checked request; a large body is parsed on another thread. Raises the errors of `parse_request`."""
    json_length, most = request.headers.get(_JSON_LENGTH), request.app.state.settings.max_body_values
    if len(content) <= INLINE_BYTES:
        return parse_request(content, json_length, most)
    encoder = request.app.state.resources.encoder
    return await asyncio.get_running_loop().run_in_executor(encoder, parse_request, content, json_length, most)


async def _content(request: Request) -> bytes:
    """Return the body, decompressed; raises the errors of `read_body` and `Decompressor`."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return await read_body(request)
    decompressor = Decompressor(encoding, request.app.state.settings.max_body_bytes)
    content = await read_body(request, decompressor.parts)
    decompressor.finish()
    return content


async def index(request: Request) -> Response:
    """Answer `POST /v2/repository/index`: the models that are served."""
    await read_body(request)
    return await json_response(request, lambda: descriptions.index(request.app))


async def load(request: Request) -> Response:
    """Answer `POST /v2/repository/models/{model}/load`; needs an administrator's key."""
    check_administrator(request.app.state.settings, is_administrator=identity_of(request).administrator)
    await read_body(request)
    await admin.load_model(request.app.state.administration, request.path_params["model"])
    return await json_response(request, dict)


async def unload(request: Request) -> Response:
    """Answer `POST /v2/repository/models/{model}/unload`; needs an administrator's key."""
    check_administrator(request.app.state.settings, is_administrator=identity_of(request).administrator)
    await read_body(request)
    await request.app.state.administration.call(Unload(request.path_params["model"]))
    return await json_response(request, dict)


async def unsupported(request: Request) -> Response:
    """Answer what this server does not do."""
    raise HTTPException(501, f"{request.url.path.removeprefix('/')} is not supported by this server")


def _error(failure: Failure) -> Response:
    return JSONResponse({"error": failure.detail}, failure.status, failure.headers)


def _run(app: FastAPI) -> AbstractAsyncContextManager[None]:
    """Serve over gRPC, too, where the settings have a port."""
    settings: Settings = app.state.settings
    if settings.grpc_port is None:
        return contextlib.nullcontext()
    from service.protocols.open_inference.grpc import server as grpc_server  # an extra of its own

    return grpc_server.run(app, settings)


_Handler = Callable[[Request], Awaitable[Response]]
_MODEL = "/v2/models/{model}"
_OF_MODELS: Mapping[str, _Handler] = {"": metadata, "/ready": model_ready, "/config": config, "/stats": stats}
_GET: Mapping[str, _Handler] = {
    "/v2": server,
    "/v2/health/live": live,
    "/v2/health/ready": ready,
    "/v2/models": models,
    "/v2/models/stats": stats,
    **{_MODEL + ending: function for ending, function in _OF_MODELS.items()},
    **{f"{_MODEL}/versions/{{version}}{ending}": function for ending, function in _OF_MODELS.items()},
}
_POST: Mapping[str, _Handler] = {
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
    run=_run,
    open_paths=(r"/v2/health/(live|ready)", r"/v2/models/[^/]+(/versions/[^/]+)?/ready"),
)
