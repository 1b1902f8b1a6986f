"""Tests of `softserve serve` as a process of its own."""

import contextlib
import http.client
import logging
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.server.process import _LineFormatter
from tests.fixtures.bundled import NEXT_WORD_VERSION


def get(process, path):
    """Status, header Connection and text of an answer on a connection of its own."""
    connection = http.client.HTTPConnection(*process.address.removeprefix("http://").split(":"), timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers["connection"], response.read().decode()


def test_serving_until_sigterm(start, wait_until):
    process = start()
    wait_until(process.ready)
    assert process.post("thank you very") == "much"
    assert process.end() == 0


def test_a_request_in_flight_at_sigterm_is_answered(start, wait_until):
    process = start("--models", "next-word:4", "--max-delay-ms", "800")
    wait_until(process.ready)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(process.post, "thank you very")
        wait_until(
            lambda: (
                f'softserve_queue_items{{model="next-word",version="{NEXT_WORD_VERSION}"}} 1.0'
                in process.get("/metrics")
            )
        )
        status = process.end()
        assert answer.result() == "much"
    assert status == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_an_open_connection_is_told_to_close_before_it_is(start, wait_until, workers):
    """A client that repeats requests never sees a connection that ends without an answer."""
    process = start("--models", "next-word:4", "--workers", workers)
    wait_until(process.ready, 120)
    connection = http.client.HTTPConnection(*process.address.removeprefix("http://").split(":"), timeout=30)
    told = None
    while told is None:
        connection.request("GET", "/livez")
        response = connection.getresponse()
        assert response.status == 200
        response.read()
        told = response.headers["connection"]
        process.process.terminate()
    assert told == "close"
    assert process.process.wait(30) == 0


def test_requests_are_accepted_for_the_drain_delay_while_the_service_is_not_ready(start, wait_until):
    process = start("--models", "next-word:4", "--drain-delay", "1.5")
    wait_until(process.ready)
    host, port = process.address.removeprefix("http://").split(":")
    process.process.terminate()
    began = time.monotonic()
    time.sleep(0.1)  # for the signal to arrive
    for path in ("/readyz", "/health", "/v2/health/ready"):
        status, connection, text = get(process, path)
        assert (status, connection) == (503, "close")
        assert "shutting down" in text
    assert process.post("thank you very") == "much"
    assert time.monotonic() - began < 1.4, "this machine is too slow to see an answer before the delay ends"
    time.sleep(1.2 + began - time.monotonic())
    assert process.post("thank you very") == "much", "a new connection is accepted until the delay ends"
    wait_until(lambda: process.process.poll() is not None)
    assert time.monotonic() - began > 1.5
    assert process.process.returncode == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=10)


def test_sigint_skips_the_drain_delay(start, wait_until):
    process = start("--models", "next-word:4", "--drain-delay", "60")
    wait_until(process.ready)
    assert process.end(signal.SIGINT) == 0


def test_sigint_is_an_orderly_end_too(start, wait_until):
    process = start("--models", "next-word:4")
    wait_until(lambda: process.address)
    assert process.end(signal.SIGINT) == 0


def test_a_broken_bundle_ends_the_process_with_a_message(start, broken_models):
    process = start("--model-dirs", broken_models)
    assert process.process.wait(30) == 1
    assert "tokenizer.json does not match its checksum" in process.text
    assert "Traceback" not in process.text


def test_a_taken_port_ends_the_process_with_a_message(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start("--models", "next-word:4", "--port", taken.getsockname()[1])
        assert process.process.wait(30) == 1
    assert "address already in use" in process.text


def test_log_lines_do_not_control_the_terminal():
    record = logging.LogRecord("softserve", logging.ERROR, "", 1, "a model failed: %s", ("\x1b[2J\r",), None)
    assert _LineFormatter("%(levelname)s %(message)s").format(record) == "ERROR a model failed: \\x1b[2J\\r"
