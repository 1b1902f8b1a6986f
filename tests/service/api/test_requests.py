"""What the endpoints share, without an application."""

import fastapi
import pytest
from pydantic import BaseModel, ValidationError

from service.engine.caller import Timing
from service.http.accounts import account_of
from service.http.requests import Body, ModelName, Texts, caller_of, server_timing, urgency_of


class Request(Body):
    text: Texts
    model: ModelName = None


@pytest.mark.parametrize(("given", "texts"), [("a", ["a"]), ("", [""]), (["a", ""], ["a", ""])])
def test_one_text_is_a_list_of_one(given, texts):
    assert Request.model_validate({"text": given}).text == texts


@pytest.mark.parametrize("given", [None, 5, [], {}, ["a", None], [["a"]], "\ud800", ("a",)])
def test_what_is_no_text_is_named(given):
    with pytest.raises(ValidationError) as caught:
        Request.model_validate({"text": given})
    assert {error["loc"][0] for error in caught.value.errors()} == {"text"}


def test_unknown_fields_are_refused():
    with pytest.raises(ValidationError, match="Extra inputs"):
        Request.model_validate({"text": "a", "texts": "b"})


def test_the_schema_says_that_one_text_is_enough():
    kinds = Request.model_json_schema()["properties"]["text"]["anyOf"]
    assert [kind["type"] for kind in kinds] == ["string", "array"]
    assert issubclass(Request, BaseModel)


def test_timing_is_said_in_milliseconds():
    request = fastapi.Request({"type": "http", "state": {}})
    assert server_timing(request) == {}
    account = account_of(request.scope)
    account.preparation_seconds, account.timing = 0.002, Timing(0.0015, 1.25, 7)
    assert server_timing(request) == {"Server-Timing": "queue;dur=1.500, tokenize;dur=2.000, infer;dur=1250.000"}


def test_the_caller_is_who_the_headers_say():
    headers = [(b"x-request-timeout-ms", b"250"), (b"priority", b"u=1")]
    request = fastapi.Request({"type": "http", "state": {}, "headers": headers})
    caller = caller_of(request)
    assert (caller.timeout_ms, caller.urgency, caller.tenant) == (250, 1, "")
    assert caller.account is account_of(request.scope)
    assert caller_of(request, 20, "u=5").timeout_ms == 20


@pytest.mark.parametrize(
    ("header", "urgency"),
    [(None, 3), ("u=0", 0), ("u=7, i", 7), ("i, u=5", 5), (" u=1 ", 1), ("u=2;x=1", 2)]
    + [(rubbish, 3) for rubbish in ("", "u=8", "u=-1", "u=12", "u", "0", "high", "uu=1", "u=1x", "\x00")],
)
def test_urgency_is_what_the_header_says_or_the_usual_one(header, urgency):
    assert urgency_of(header) == urgency
