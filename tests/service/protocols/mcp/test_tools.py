"""Tools answer as the native endpoints do; errors are in their results."""

import pytest
from fastapi.testclient import TestClient

from service.protocols.mcp.tools import TOOLS
from service.server.app import create_app
from service.settings import Settings


@pytest.fixture(scope="module")
def client(wait_until):
    app = create_app(Settings(threads=1, protocols="native,mcp"))
    with TestClient(app, base_url="http://127.0.0.1:8000") as found:
        wait_until(lambda: found.get("/readyz").status_code == 200)
        yield found


@pytest.fixture
def call(client):
    def answer(name, **arguments):
        content = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        found = client.post("/mcp", json=content, headers={"Accept": "application/json, text/event-stream"})
        assert found.status_code == 200, found.text
        return found.json()["result"]

    return answer


def native(client, path, **body):
    return client.post(path, json=body).json()["results"][0]


def test_answers_are_those_of_the_native_endpoints(client, call):
    text = "play some music"
    for name, arguments, path, body in (
        ("classify", {"text": text, "top_k": 2}, "/v1/classify", {"text": text, "top_k": 2}),
        ("score", {"text": text}, "/v1/score", {"text": text}),
        (
            "translate-text",
            {"text": "Guten Morgen!", "target_language": "en"},
            "/v1/translate",
            {"text": "Guten Morgen!"},
        ),
        ("next-word", {"context": text, "top_k": 3}, "/v1/next-word", {"context": text, "top_k": 3}),
    ):
        found = call(name, **arguments)
        expected = native(client, path, **body)
        assert found["structuredContent"].keys() == {key for key, value in expected.items() if value is not None}
        for key, value in expected.items():
            if isinstance(value, float):
                assert found["structuredContent"][key] == pytest.approx(value, rel=1e-3)
            elif isinstance(value, str):
                assert found["structuredContent"][key] == value
        assert found["isError"] is False


def test_languages(call):
    assert call("get-source-languages")["structuredContent"] == {"languages": ["de"]}
    assert call("get-target-languages", source_language="de")["structuredContent"] == {"languages": ["en"]}
    assert call("get-target-languages", source_language="fr")["structuredContent"] == {"languages": []}


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("nope", {}, "unknown tool 'nope'; known tools: translate-text"),
        ("classify", {}, "text: is missing"),
        ("classify", {"text": "a", "top_k": 0}, "top_k"),
        ("classify", {"text": "a", "model": "nope"}, "unknown model 'nope'"),
        ("classify", {"text": "a", "colour": 1}, "colour: unknown field"),
        ("score", {"text": "a " * 5000}, "tokens"),
        ("translate-text", {"text": "a", "target_language": "fr"}, "no model translates to 'fr'"),
    ],
)
def test_what_is_wrong_is_in_the_result(call, name, arguments, words):
    found = call(name, **arguments)
    assert found["isError"] is True
    assert words in found["content"][0]["text"]


def test_every_tool_is_described():
    for tool in TOOLS.values():
        assert tool.description
        assert tool.arguments.model_json_schema()["additionalProperties"] is False
