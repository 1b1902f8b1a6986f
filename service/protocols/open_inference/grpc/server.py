"""The gRPC server: methods, keys, deadlines, metrics, and errors as status codes."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import grpc
from fastapi import FastAPI
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError
from starlette.datastructures import Headers

from models import UnknownModelError
from service.engine.administration import Unload
from service.engine.caller import Account, Caller
from service.engine.resources import GRPC_CALLS, Resources
from service.engine.served_models import NotReady, ServedModels
from service.http import admin
from service.http.answer import INLINE_ITEMS
from service.http.auth import Identity
from service.http.body import reserve_body
from service.http.cache_headers import forbids_storing
from service.http.errors import Failing, Failure, failure_of
from service.http.requests import TIMEOUT_HEADER, parsed_timeout, urgency_of
from service.observability.metrics import Metrics
from service.protocols.open_inference import descriptions
from service.protocols.open_inference.grpc import open_inference_pb2 as messages
from service.protocols.open_inference.grpc.messages import Message, infer_request, infer_response
from service.protocols.open_inference.served import InferenceModel, check_administrator, find_model
from service.protocols.open_inference.tensors import INLINE_BYTES
from service.settings import Settings

__all__ = ["run"]

logger = logging.getLogger("softserve")

_SERVICE = "inference.GRPCInferenceService"
_UNMATCHED = "unmatched"
"""Endpoint under which calls of unknown methods are counted, as those of unknown paths of HTTP are."""
_LOG_SECONDS = 1.0
"""Least time between two lines about broken messages: a client without a key can send thousands a second."""
_IDLE_MILLISECONDS = 300_000
"""Time after which a connection without calls is closed."""
_CODES: Mapping[int, grpc.StatusCode] = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""The code of each HTTP status; others are invalid arguments."""


Context = Any
"""`grpc.aio.ServicerContext`, of a library without types."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call: application, caller, key and metadata."""

    app: FastAPI
    caller: Caller
    identity: Identity
    headers: Headers
    """The metadata of the call."""

    def with_deadline_of_metadata(self) -> "Asked":
        """Return the call with the deadline of its metadata, where it has none itself."""
        header = self.headers.get(TIMEOUT_HEADER)
        if header is None or self.caller.timeout_ms is not None:
            return self
        return replace(self, caller=replace(self.caller, timeout_ms=parsed_timeout(header)))


Method = Callable[[Message, Asked], Awaitable[Message]]
"""Answers a message."""


@contextlib.asynccontextmanager
async def run(app: FastAPI, settings: Settings) -> AsyncIterator[None]:
    """Serve on the port of the settings while the application runs; raises `RuntimeError` where it is taken."""
    limit = settings.max_body_bytes
    options = {
        "grpc.max_receive_message_length": limit,
        "grpc.max_concurrent_streams": GRPC_CALLS,
        "grpc.max_connection_idle_ms": _IDLE_MILLISECONDS,
        "grpc.so_reuseport": int(settings.workers > 1),
    }
    server = grpc.aio.server(options=tuple(options.items()), maximum_concurrent_rpcs=GRPC_CALLS)
    waits = _Waits(settings.body_timeout)
    known = grpc.method_handlers_generic_handler(_SERVICE, _handlers(app, waits))
    server.add_generic_rpc_handlers((known, _UnknownMethods(app)))
    port = server.add_insecure_port(f"{settings.host}:{settings.grpc_port}")
    await server.start()
    logger.info("gRPC (Open Inference) on %s:%d", settings.host, port)
    try:
        yield
    finally:
        waits.end()
        left = app.state.shutdown_deadline - time.monotonic()
        await server.stop(max(0.0, min(settings.shutdown_timeout, left)))


class _Waits:
    """The time for which calls wait for their next message."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._stopping = seconds, False
        self._running: set[asyncio.Timeout] = set()

    async def message(self, given: AsyncIterator[bytes]) -> Message:
        """Return the next message of a call, None at its end; raises `_Refused` where there is none in time."""
        try:
            async with asyncio.timeout(0 if self._stopping else self._seconds) as running:
                self._running.add(running)
                try:
                    return await anext(given, None)
                finally:
                    self._running.discard(running)
        except TimeoutError:
            if self._stopping:
                raise _Refused(Failure(503, "the service is shutting down")) from None
            raise _Refused(Failure(408, f"no message arrived within {self._seconds:g} seconds")) from None

    def end(self) -> None:
        """Wait no longer, for the server stops."""
        self._stopping = True
        for each in self._running:
            each.reschedule(asyncio.get_running_loop().time())


class _BrokenMessages:
    """Logs messages that cannot be parsed: at most a line in `_LOG_SECONDS`, with how many there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next, self._unreported = clock, -math.inf, 0

    def note(self, method: str) -> None:
        """Take note of one."""
        self._unreported += 1
        now = self._clock()
        if now >= self._next:
            logger.warning("gRPC messages that cannot be parsed: %d, the last one to %s", self._unreported, method)
            self._next, self._unreported = now + _LOG_SECONDS, 0


def _handlers(app: FastAPI, waits: _Waits) -> dict[str, grpc.RpcMethodHandler]:
    """Return the handler of each method.

    All take a stream of messages, so that a handler begins with its call: those of grpc that take one message begin
    after it, and a call without a key or a message would stay open. Messages come as bytes, which the handler parses:
    grpc would end the call of a broken one with the code UNKNOWN and a traceback in the log.
    """
    found, broken = {}, _BrokenMessages()
    for name, method in _METHODS.items():
        found[name] = grpc.stream_unary_rpc_method_handler(
            _Unary(app, waits, broken, name, method).respond,
            response_serializer=lambda message: message.SerializeToString(),
        )
    found["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
        _Stream(app, waits, broken, "ModelStreamInfer", _infer).stream,
        response_serializer=lambda message: message.SerializeToString(),
    )
    return found


class _UnknownMethods:
    """A generic handler that refuses calls of methods that do not exist, as grpc does by itself, and counts them."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Return the handler of any call that no other one takes."""
        del handler_call_details
        return grpc.stream_unary_rpc_method_handler(self._refuse)

    async def _refuse(self, given: AsyncIterator[bytes], context: Context) -> Message:
        del given
        self._app.state.metrics.count("", _UNMATCHED, 501, 0.0)
        detail = f"method not found: there is no such method; the service is {_SERVICE}"
        return await _abort(context, Failure(501, detail))


class _Call:
    """Runs the calls of one method: key, messages, resources, metrics."""

    def __init__(self, app: FastAPI, waits: _Waits, broken: _BrokenMessages, name: str, method: Method) -> None:
        self._app, self._waits, self._broken, self._name, self._method = app, waits, broken, name, method
        self._type = messages.ModelInferRequest if method is _infer else getattr(messages, f"{name}Request")

    async def receive(self, given: AsyncIterator[bytes], context: Context, *, needed: bool = False) -> Message:
        """Return the next message of a call, None at its end unless one is needed.

        Raises `_Refused`, at once where a key is missing.
        """
        asked = self._asked(context)
        try:
            if not (asked.identity.allowed or self._name in _OPEN):
                raise _Refused(Failure(401, "a valid key is needed in the metadata: authorization, Bearer KEY"))
            message = self._parsed(await self._waits.message(given))
            if message is None and needed:  # also of a message that grpc has refused for its size
                raise _Refused(Failure(400, "the call has no message"))
        except _Refused as error:
            self._count(asked.caller.account, error.failure.status, 0.0)
            raise
        return message

    def _parsed(self, content: bytes | None) -> Message:
        """Return the message of the bytes that a client has sent; raises `_Refused` where they are none."""
        try:
            return None if content is None else self._type.FromString(content)
        except DecodeError:
            self._broken.note(self._name)
            raise _Refused(Failure(400, f"the message is no {self._type.DESCRIPTOR.full_name}")) from None

    async def answer(self, message: Message, context: Context) -> Message:
        """Return the answer to a message; raises `_Refused`."""
        started, status = time.monotonic(), 200
        asked = self._asked(context)
        account = asked.caller.account
        try:
            await reserve_body(self._app.state.engine, asked.caller, message.ByteSize())
            return await self._method(message, asked.with_deadline_of_metadata())
        except Exception as error:
            failure = failure_of(Failing(account, self._app), error)
            status = 500 if failure is None else failure.status
            if failure is None:
                logger.exception("an error in %s", self._name)
                failure = Failure(500, "an error in the service; its log has the details")
            raise _Refused(failure) from error
        except BaseException:  # the client has gone
            status = 499
            raise
        finally:
            account.close()
            self._count(account, status, time.monotonic() - started)

    def _asked(self, context: Context) -> Asked:
        """Return who calls: the key and the urgency are metadata, the deadline is the call's."""
        metadata = context.invocation_metadata() or ()
        values = [(name.encode(), value.encode() if isinstance(value, str) else value) for name, value in metadata]
        headers, guard = Headers(raw=values), self._app.state.guard
        identity: Identity = guard.identify(headers, self._path)
        left = context.time_remaining()
        timeout_ms = None if left is None else max(1, int(1000 * left))
        account = Account(no_store=forbids_storing(headers.get("cache-control", "").encode()))
        caller = Caller(account, timeout_ms, urgency_of(headers.get("priority")), identity.tenant)
        return Asked(self._app, caller, identity, headers)

    @property
    def _path(self) -> str:
        return f"/{_SERVICE}/{self._name}"

    def _count(self, account: Account, status: int, seconds: float) -> None:
        metrics: Metrics = self._app.state.metrics
        metrics.count(account.model or "", self._path, status, seconds, short_deadline=account.short_deadline)


class _Refused(Exception):
    """A call that was not answered."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class _Unary(_Call):
    async def respond(self, given: AsyncIterator[bytes], context: Context) -> Message:
        """Answer a message, or abort the call."""
        try:
            message = await self.receive(given, context, needed=True)
            return await self.answer(message, context)
        except _Refused as error:
            failure = error.failure
        return await _abort(context, failure)


class _Stream(_Call):
    async def stream(self, given: AsyncIterator[bytes], context: Context) -> AsyncIterator[Message]:
        """Answer each message in its turn; an error of one ends no stream."""
        while True:
            try:
                message = await self.receive(given, context)
            except _Refused as error:
                await _abort(context, error.failure)
            if message is None:
                return
            try:
                found = await self.answer(message, context)
                yield messages.ModelStreamInferResponse(infer_response=found)
            except _Refused as error:
                identified = messages.ModelInferResponse(id=message.id)
                yield messages.ModelStreamInferResponse(error_message=str(error), infer_response=identified)


async def _abort(context: Context, failure: Failure) -> Message:
    code = _CODES.get(failure.status, grpc.StatusCode.INVALID_ARGUMENT)
    headers = tuple((name.lower(), value) for name, value in failure.headers.items())
    return await context.abort(code, failure.detail, headers)


async def _server_live(message: Message, asked: Asked) -> Message:
    del message, asked
    return messages.ServerLiveResponse(live=True)


async def _server_ready(message: Message, asked: Asked) -> Message:
    del message
    served_models: ServedModels = asked.app.state.served_models
    return messages.ServerReadyResponse(ready=served_models.ready)


async def _server_metadata(message: Message, asked: Asked) -> Message:
    del message
    return ParseDict(descriptions.server(asked.app), messages.ServerMetadataResponse())


def _found(message: Message, asked: Asked) -> InferenceModel:
    return find_model(asked.app, message.name, message.version)


async def _model_ready(message: Message, asked: Asked) -> Message:
    try:
        return messages.ModelReadyResponse(ready=_found(message, asked).ready)
    except (UnknownModelError, NotReady):
        return messages.ModelReadyResponse(ready=False)


async def _model_metadata(message: Message, asked: Asked) -> Message:
    content = descriptions.metadata(asked.app, _found(message, asked))
    return ParseDict(content, messages.ModelMetadataResponse())


async def _model_config(message: Message, asked: Asked) -> Message:
    content = {"config": descriptions.config(_found(message, asked))}
    return ParseDict(content, messages.ModelConfigResponse(), ignore_unknown_fields=True)


async def _model_statistics(message: Message, asked: Asked) -> Message:
    chosen = [_found(message, asked)] if message.name else descriptions.served_models(asked.app)
    content = descriptions.model_statistics(asked.app, chosen)
    return ParseDict(content, messages.ModelStatisticsResponse(), ignore_unknown_fields=True)


async def _infer(message: Message, asked: Asked) -> Message:
    model = find_model(asked.app, message.model_name, message.model_version)
    large = message.ByteSize() > INLINE_BYTES
    call = await _apart(asked, large, lambda: infer_request(message))
    tensors = await model.infer(asked.app.state.engine, asked.caller, call)
    large = sum(len(tensor.values) for tensor in tensors) > INLINE_ITEMS
    return await _apart(asked, large, lambda: infer_response(model.name, model.version, call, tensors))


async def _apart(asked: Asked, large: bool, function: Callable[[], Message]) -> Message:
    """Return the result of a function, which runs on another thread where its input is large."""
    if not large:
        return function()
    resources: Resources = asked.app.state.resources
    return await asyncio.get_running_loop().run_in_executor(resources.encoder, function)


async def _index(message: Message, asked: Asked) -> Message:
    del message
    return ParseDict({"models": descriptions.index(asked.app)}, messages.RepositoryIndexResponse())


async def _load(message: Message, asked: Asked) -> Message:
    check_administrator(asked.app.state.settings, is_administrator=asked.identity.administrator)
    await admin.load_model(asked.app.state.administration, message.model_name)
    return messages.RepositoryModelLoadResponse()


async def _unload(message: Message, asked: Asked) -> Message:
    check_administrator(asked.app.state.settings, is_administrator=asked.identity.administrator)
    await asked.app.state.administration.call(Unload(message.model_name))
    return messages.RepositoryModelUnloadResponse()


_METHODS: Mapping[str, Method] = {
    "ServerLive": _server_live,
    "ServerReady": _server_ready,
    "ServerMetadata": _server_metadata,
    "ModelReady": _model_ready,
    "ModelMetadata": _model_metadata,
    "ModelConfig": _model_config,
    "ModelStatistics": _model_statistics,
    "ModelInfer": _infer,
    "RepositoryIndex": _index,
    "RepositoryModelLoad": _load,
    "RepositoryModelUnload": _unload,
}
_OPEN = frozenset({"ServerLive", "ServerReady", "ModelReady"})
"""Methods that need no key."""
