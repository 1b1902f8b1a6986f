"""A line for each request."""

import datetime
import json
import logging

import pytest

from service.http.access_log import AccessLog


@pytest.fixture
def lines():
    """The log records of a test; the handler is removed afterwards."""
    logger, found = logging.getLogger("softserve.access"), []

    class Keeper(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    logger.addHandler(keeper := Keeper())
    yield found
    logger.removeHandler(keeper)


def test_a_request_to_a_model_is_one_line(serve, lines):
    client = serve(access_log=True)
    secret = "zebra xylophone"
    answer = client.post("/v1/next-word", json={"context": secret}, headers={"X-Request-Id": "abc"})
    assert answer.status_code == 200
    (entry,) = [json.loads(line) for line in lines if "next-word" in line]
    assert entry["request_id"] == "abc"
    assert (entry["method"], entry["endpoint"], entry["status"]) == ("POST", "/v1/next-word", 200)
    assert entry["model"] == "next-word"
    assert entry["batch"] >= 1
    assert entry["seconds"] >= entry["inference_seconds"] > 0
    assert entry["queue_seconds"] >= 0
    assert entry["tokenize_seconds"] > 0
    assert datetime.datetime.fromisoformat(entry["time"]).tzinfo is not None
    assert not any(word in line for line in lines for word in secret.split())


def test_refusals_and_unknown_paths_are_lines_without_what_was_sent(serve, lines):
    client = serve(access_log=True)
    client.post("/v1/next-word?key=secret", json={"secret": "secret"}, headers={"Authorization": "Bearer secret"})
    client.get("/secret")
    entries = [json.loads(line) for line in lines if "/readyz" not in line]
    assert [(entry["endpoint"], entry["status"]) for entry in entries] == [("/v1/next-word", 422), ("unmatched", 404)]
    assert all("batch" not in entry for entry in entries)
    assert not any("secret" in line for line in lines)


def test_nothing_is_logged_unless_it_is_asked_for(serve, lines):
    serve().get("/livez")
    assert lines == []


def test_a_handler_is_made_once_and_writes_plain_lines(capsys):
    logger = logging.getLogger("softserve.access")
    kept, logger.handlers = logger.handlers, []
    try:
        AccessLog()
        AccessLog().write({"method": "GET", "state": {"request_id": "a"}}, 200, 0.25)
        (line,) = capsys.readouterr().out.splitlines()
        assert json.loads(line)["seconds"] == 0.25
    finally:
        logger.handlers = kept
