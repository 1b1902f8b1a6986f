"""Sentences about wrong fields: of every type of error, and from every endpoint in the form of its protocol."""

import json
from typing import get_args

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core.core_schema import ErrorType

from models.operations.validation import errors_of, named_sentence, sentence, shown_name
from service.http.v1.operations import REQUESTS
from service.http.v1.rescoring import RescoreRequest
from service.protocols import deepl, huggingface, libretranslate, tei
from service.protocols.mcp.tools import TOOLS
from service.protocols.openai import tokens
from service.protocols.openai.fields import CompletionFields
from service.server.app import create_app
from service.settings import PROTOCOLS, Settings

PYDANTIC = (
    "Input should",
    "Extra inputs",
    "Field required",
    "Value error",
    "Assertion failed",
    "should have",
    "valid ",
)
"""Parts of pydantic's sentences."""
OURS = ("value_error", "assertion_error")
"""Types of errors whose sentences are of this project's validators."""
WRONG = [None, True, 0, -1, 1.5, 2**70, 1e400, "x", "", "\ud800", "9" * 5000, [], [[]], [0], ["a", None], {}, {"a": 1}]
TEXT = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
LANGUAGES = {"source": "de", "target": "en"}
BODIES = [
    ("/v1/classify", {"text": "a"}, REQUESTS["/v1/classify"].model_fields),
    ("/v1/next-word", {"context": "a"}, REQUESTS["/v1/next-word"].model_fields),
    ("/v1/score", {"text": "a"}, REQUESTS["/v1/score"].model_fields),
    ("/v1/rescore", {"hypotheses": [{"text": "a"}]}, RescoreRequest.model_fields),
    ("/v1/translate", {"text": "a", "beam_size": 1}, REQUESTS["/v1/translate"].model_fields),
    ("/v1/generate-text", {"text": "a"}, REQUESTS["/v1/generate-text"].model_fields),
    ("/v1/completions", {"prompt": "a", "max_tokens": 1}, CompletionFields.model_fields),
    ("/tokenize", {"prompt": "a"}, tokens.TokenizeFields.model_fields),
    ("/detokenize", {"tokens": [2]}, tokens.DetokenizeFields.model_fields),
    ("/predict", {"inputs": "a"}, tei.PredictFields.model_fields),
    ("/hf/intents", {"inputs": "a"}, huggingface.InferenceFields.model_fields),
    ("/translate", {"q": "a", **LANGUAGES}, libretranslate.TranslateFields.model_fields),
    ("/detect", {"q": "a"}, libretranslate.DetectFields.model_fields),
    ("/v2/translate", {"text": "a", "target_lang": "EN"}, deepl.TranslateFields.model_fields),
    ("/v2/models/intents/infer", {"inputs": [TEXT]}, ("id", "parameters", "inputs", "outputs")),
]
PARAMETERS = [
    ("/hf/intents", {"inputs": "a"}, huggingface.ClassificationParameters.model_fields),
    ("/hf/de-en", {"inputs": "a"}, huggingface.TranslationParameters.model_fields),
    ("/v2/models/intents/infer", {"inputs": [TEXT]}, ("timeout", "priority", "top_k", "truncate")),
]


@pytest.fixture(scope="module")
def client(wait_until):
    app = create_app(Settings(threads=1, protocols=",".join(("native", *PROTOCOLS))))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        wait_until(lambda: app.state.served_models.ready, 120)
        yield client


def post(client, path, body):
    """Return the status of a response and, for an error, its sentence, which every protocol has elsewhere."""
    content = json.dumps(body).encode()
    response = client.post(path, content=content, headers={"Content-Type": "application/json"})
    if response.status_code == 200:
        return 200, ""
    assert response.status_code in (400, 404, 413, 422), response.text
    found = response.json()
    if path.startswith("/v1/completions") or path.endswith("tokenize"):
        return response.status_code, found["error"]["message"]
    if path.startswith("/v1/"):
        return response.status_code, found["detail"]
    return response.status_code, found["message" if path == "/v2/translate" else "error"]


def check(sentence):
    assert not any(part in sentence for part in PYDANTIC), sentence
    assert "is not valid" not in sentence, f"a type of error without a sentence: {sentence}"
    assert "[" not in sentence.partition(":")[0], f"a type's name: {sentence}"


@pytest.mark.parametrize(("path", "valid", "fields"), BODIES, ids=[path for path, *_ in BODIES])
def test_no_wrong_value_is_answered_by_pydantic(client, path, valid, fields):
    refused = 0
    for body in (
        *({**valid, name: value} for name in fields for value in WRONG),
        *({name: value for name, value in valid.items() if name != left_out} for left_out in valid),
        {**valid, "unknown": 1},
        {},
    ):
        status, found = post(client, path, body)
        check(found)
        refused += status != 200
    assert refused >= 10


@pytest.mark.parametrize(("path", "valid", "fields"), PARAMETERS, ids=[path for path, *_ in PARAMETERS])
def test_no_wrong_parameter_is_answered_by_pydantic(client, path, valid, fields):
    for name in (*fields, "unknown"):
        for value in WRONG:
            check(post(client, path, {**valid, "parameters": {name: value}})[1])


@pytest.mark.parametrize("field", [*TEXT, "parameters"])
def test_no_wrong_tensor_is_answered_by_pydantic(client, field):
    for value in WRONG:
        check(post(client, "/v2/models/intents/infer", {"inputs": [{**TEXT, field: value}]})[1])


@pytest.mark.parametrize("tool", TOOLS)
def test_no_wrong_argument_of_a_tool_is_answered_by_pydantic(client, tool):
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    for name in (*TOOLS[tool].arguments.model_fields, "unknown"):
        for value in (None, True, -1, 1.5, "x", [], {}):
            call = {"name": tool, "arguments": {"text": "a", "target_language": "en", name: value}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            result = client.post("/mcp", json=body, headers=headers).json()["result"]
            if result.get("isError"):
                check(result["content"][0]["text"])


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "9" * 5000, ""])
def test_no_wrong_deadline_is_answered_by_pydantic(client, value):
    response = client.post("/v1/classify", json={"text": "a"}, headers={"X-Request-Timeout-Ms": value})
    assert response.status_code == 422
    check(response.json()["detail"])
    assert response.json()["detail"].startswith("X-Request-Timeout-Ms: ")


@pytest.mark.parametrize("kind", get_args(ErrorType))
def test_no_type_of_error_is_said_in_words_of_pydantic(kind):
    context = {"gt": 1, "ge": 1, "lt": 1, "le": 1, "expected": "'a' or True", "min_length": 1, "max_length": 2}
    context |= {"multiple_of": 2, "pattern": "a+"}
    found = sentence(
        {"type": kind, "msg": "Value error, ours" if kind in OURS else "Input should be x", "ctx": context}
    )
    assert found
    assert not any(part in found for part in ("Input should", "Value error", "{")) or kind == "assertion_error"


@pytest.mark.parametrize(
    ("kind", "context", "expected"),
    [
        ("greater_than_equal", {"ge": 1}, "must be at least 1"),
        ("too_long", {"max_length": 50}, "must have at most 50 items"),
        ("literal_error", {"expected": "'a', None or False"}, "must be 'a', null or false"),
        ("date_type", {}, "is not valid"),
        ("too_long", {}, "is not valid"),
    ],
)
def test_a_sentence_has_the_bounds(kind, context, expected):
    assert sentence({"type": kind, "msg": "Input should be another", "ctx": context}) == expected


def test_errors_are_named_by_their_place():
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(dict[str, list[int]]).validate_python({"a": [1, "x"]})
    (error,) = errors_of(caught.value, "body", "inputs")
    assert error["loc"] == ("body", "inputs", "a", 1)
    assert named_sentence(error, error["loc"][1:]) == "inputs.a.1: must be a whole number"
    assert named_sentence(error, ()) == "must be a whole number"


@given(st.text(st.characters()))
def test_names_are_short_and_can_be_encoded(name):
    assert len(shown_name(name).encode()) <= 4 * 80
