"""The gRPC server of an application: methods, metrics, errors. The official clients are in tests/clients/packages."""

import contextlib
import logging
import re
import socket
import threading
import time

import grpc
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from service.protocols.open_inference.grpc import open_inference_pb2 as messages
from service.protocols.open_inference.grpc import server
from service.server.app import create_app
from service.settings import Settings

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
IDLE = "no message arrived within 0.5 seconds"
METHOD = "/inference.GRPCInferenceService/"


KEY = "key-of-the-tests-0123456789"


@contextlib.contextmanager
def serving(wait_until, **settings):
    """A client of a service over HTTP, and the port of gRPC."""
    log = logging.getLogger("softserve")
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        with TestClient(
            create_app(Settings(**{"threads": 1, "models": ("intents",), "grpc_port": 0, **settings}))
        ) as client:
            wait_until(lambda: client.get("/readyz").status_code == 200)
            yield client, next(int(found[1]) for line in lines if (found := re.search(r"gRPC .*:(\d+)$", line)))
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@pytest.fixture(scope="module")
def served(wait_until):
    with serving(wait_until) as found:
        yield found


def streams(port, count):
    """Streams that send nothing."""
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    method = channel.stream_stream(
        METHOD + "ModelStreamInfer",
        lambda each: each.SerializeToString(),
        messages.ModelStreamInferResponse.FromString,
    )
    never = threading.Event()
    opened = [method(iter(never.wait, True), timeout=20) for _ in range(count)]
    return channel, never, opened


def end_of(stream):
    with pytest.raises(grpc.RpcError) as found:
        next(stream)
    return found.value.code(), found.value.details()


def live(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        method = channel.unary_unary(
            METHOD + "ServerLive", response_deserializer=messages.ServerLiveResponse.FromString
        )
        return method(b"", timeout=20).live


@pytest.fixture
def call(served):
    channel = grpc.insecure_channel(f"127.0.0.1:{served[1]}")

    def answer(name, message, **options):
        found = getattr(messages, f"{name}Response")
        method = channel.unary_unary(METHOD + name, lambda each: each.SerializeToString(), found.FromString)
        return method(message, timeout=30, **options)

    yield answer
    channel.close()


def texts(*values):
    found = messages.ModelInferRequest(model_name="intents")
    found.inputs.add(name="text", datatype="BYTES", shape=[len(values)]).contents.bytes_contents.extend(
        value.encode() for value in values
    )
    return found


def test_calls_are_counted_under_their_method(served, call, metric):
    name = "softserve_requests_total"
    labels = {"model": "intents", "endpoint": METHOD + "ModelInfer", "status": "200"}
    before = metric(served[0], name, **labels)
    assert call("ModelInfer", texts("play some music")).raw_output_contents
    assert metric(served[0], name, **labels) == before + 1


def test_errors_have_codes_and_are_counted(served, call, metric):
    labels = {"endpoint": METHOD + "ModelInfer", "status": "404"}
    with pytest.raises(grpc.RpcError) as found:
        call("ModelInfer", messages.ModelInferRequest(model_name="nope"))
    assert found.value.code() is grpc.StatusCode.NOT_FOUND
    assert metric(served[0], "softserve_requests_total", model="", **labels) == 1
    with pytest.raises(grpc.RpcError, match="input 'text' is missing"):
        call("ModelInfer", messages.ModelInferRequest(model_name="intents"))


def test_a_bug_is_logged_and_not_shown(call, monkeypatch, caplog):
    monkeypatch.setattr("service.protocols.open_inference.descriptions.index", lambda app: 1 / 0)
    with pytest.raises(grpc.RpcError) as found:
        call("RepositoryIndex", messages.RepositoryIndexRequest())
    assert (found.value.code(), "division" in found.value.details()) == (grpc.StatusCode.INTERNAL, False)
    assert "an error in RepositoryIndex" in caplog.text


def test_the_model_is_free_after_every_call(served, call):
    call("ModelInfer", texts("play some music"))
    with pytest.raises(grpc.RpcError):
        call("ModelInfer", texts(*["a"] * 2000))
    registry = served[0].app.state.served_models
    assert all(each._users == 0 for each in registry.served.values())


def test_streams_without_a_key_are_ended_before_they_send_anything(wait_until, tmp_path, metric):
    (tmp_path / "keys").write_text(KEY)
    with serving(wait_until, api_keys=tmp_path / "keys") as (client, port):
        channel, never, opened = streams(port, 130)
        assert live(port)
        ends = {end_of(each)[0] for each in opened}
        assert ends <= {UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
        channel.close()
        channel, never, (opened,) = streams(port, 1)
        assert end_of(opened)[0] is UNAUTHENTICATED
        assert metric(client, "softserve_requests_total", endpoint=METHOD + "ModelStreamInfer", status="401") > 1
        never.set()
        channel.close()


def test_idle_calls_are_ended(wait_until):
    with serving(wait_until, body_timeout=0.5) as (_, port):
        channel, never, opened = streams(port, 128)
        assert {end_of(each) for each in opened} == {(grpc.StatusCode.DEADLINE_EXCEEDED, IDLE)}
        method = channel.stream_unary(METHOD + "ModelInfer", lambda each: each.SerializeToString())
        with pytest.raises(grpc.RpcError, match=re.escape(IDLE)):
            method(iter(never.wait, True), timeout=20)
        with pytest.raises(grpc.RpcError, match="the call has no message"):
            method(iter(()), timeout=20)
        assert live(port)
        never.set()
        channel.close()


def test_an_idle_stream_does_not_delay_the_stop(wait_until):
    with serving(wait_until) as (_, port):
        channel, never, (opened,) = streams(port, 1)
        assert live(port)
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert end_of(opened) == (grpc.StatusCode.UNAVAILABLE, "the service is shutting down")
    never.set()
    channel.close()


def test_calls_have_what_is_left_of_the_time_for_the_stop(wait_until, monkeypatch):
    stop, stopped = grpc.aio._server.Server.stop, []

    async def noted(server, grace):
        stopped.append(grace)
        await stop(server, grace)

    with serving(wait_until) as (client, _):
        monkeypatch.setattr("grpc.aio._server.Server.stop", noted)
        client.app.state.shutdown_deadline = time.monotonic() + 5
    assert 0 < stopped[0] <= 5


def test_a_port_that_is_taken_ends_the_start():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = Settings(threads=1, models=("intents",), grpc_port=taken.getsockname()[1])
        with pytest.raises(RuntimeError, match="bind"), TestClient(create_app(settings)):
            pass


def test_the_port_needs_the_protocol_and_the_extra(monkeypatch):
    with pytest.raises(ValidationError, match="oip"):
        Settings(grpc_port=1, protocols="native")
    monkeypatch.setattr("service.settings.find_spec", lambda name: None)
    with pytest.raises(ValidationError, match=r"softserve\[grpc\]"):
        Settings(grpc_port=1)


@pytest.fixture
def send(served):
    """Sends bytes as the message of a call, and returns code and details of the error."""
    with grpc.insecure_channel(f"127.0.0.1:{served[1]}", [("grpc.max_send_message_length", -1)]) as channel:

        def error_of(path, content):
            with pytest.raises(grpc.RpcError) as found:
                channel.unary_unary(path)(content, timeout=30)
            return found.value.code(), found.value.details()

        yield error_of


INVALID = grpc.StatusCode.INVALID_ARGUMENT
BROKEN = [
    ("ModelInfer", b"\xff" * 8),  # no field
    ("ModelInfer", messages.ModelInferRequest(model_name="intents").SerializeToString()[:-1]),  # cut off
    ("ModelReady", b"\x0a\x02\xff\xfe"),  # a name that is not UTF-8
]


@pytest.mark.parametrize(("name", "content"), BROKEN)
def test_broken_messages_are_invalid_and_counted_without_a_traceback(served, send, metric, caplog, name, content):
    labels = {"endpoint": METHOD + name, "status": "400"}
    before = metric(served[0], "softserve_requests_total", **labels)
    assert send(METHOD + name, content) == (INVALID, f"the message is no inference.{name}Request")
    assert metric(served[0], "softserve_requests_total", **labels) == before + 1
    assert "Traceback" not in caplog.text
    assert [each for each in caplog.records if each.name.startswith("grpc")] == []


def test_a_broken_message_ends_its_stream_as_invalid(served):
    with grpc.insecure_channel(f"127.0.0.1:{served[1]}") as channel:
        stream = channel.stream_stream(METHOD + "ModelStreamInfer")(iter([b"\xff" * 8]), timeout=20)
        assert end_of(stream) == (INVALID, "the message is no inference.ModelInferRequest")


def test_broken_messages_are_logged_once_a_second(caplog):
    now = [10.0]
    broken = server._BrokenMessages(lambda: now[0])
    for _ in range(1000):
        broken.note("ModelInfer")
    now[0] = 10.99
    broken.note("ModelInfer")
    now[0] = 11.0
    broken.note("ModelReady")
    assert [each.getMessage() for each in caplog.records] == [
        "gRPC messages that cannot be parsed: 1, the last one to ModelInfer",
        "gRPC messages that cannot be parsed: 1001, the last one to ModelReady",
    ]


@pytest.mark.parametrize("path", [METHOD + "SystemSharedMemoryStatus", "/other.Service/Nope"])
def test_unknown_methods_are_unimplemented_and_counted(served, send, metric, path):
    labels = {"endpoint": "unmatched", "status": "501"}
    before = metric(served[0], "softserve_requests_total", **labels)
    code, details = send(path, b"")
    assert (code, "there is no such method" in details) == (grpc.StatusCode.UNIMPLEMENTED, True)
    assert metric(served[0], "softserve_requests_total", **labels) == before + 1


def test_messages_that_are_too_large_are_counted(served, send, metric, wait_until):
    labels = {"endpoint": METHOD + "ModelInfer", "status": "400"}
    before = metric(served[0], "softserve_requests_total", **labels)
    assert send(METHOD + "ModelInfer", b"\x0a" + bytes(2 << 20))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    wait_until(lambda: metric(served[0], "softserve_requests_total", **labels) == before + 1)


def test_calls_without_a_message_are_counted(served, metric):
    labels = {"endpoint": METHOD + "ModelInfer", "status": "400"}
    before = metric(served[0], "softserve_requests_total", **labels)
    with (
        grpc.insecure_channel(f"127.0.0.1:{served[1]}") as channel,
        pytest.raises(grpc.RpcError, match="the call has no message"),
    ):
        channel.stream_unary(METHOD + "ModelInfer")(iter(()), timeout=20)
    assert metric(served[0], "softserve_requests_total", **labels) == before + 1


def test_a_deadline_that_is_too_short_for_any_answer_is_a_label(served, call, metric):
    labels = {"endpoint": METHOD + "ModelInfer", "status": "504"}
    asked = texts(*["play some music by the beatles"] * 64)
    asked.parameters["timeout"].int64_param = 1
    with pytest.raises(grpc.RpcError) as found:
        call("ModelInfer", asked)
    assert found.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    name = "softserve_requests_total"
    assert metric(served[0], name, deadline="short", **labels) == metric(served[0], name, **labels) == 1
