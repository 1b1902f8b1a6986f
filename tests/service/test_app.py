import asyncio
import math
import re
import shutil

import httpx2
import pytest
from fastapi.testclient import TestClient

from models import UnknownModelError
from service.server.app import create_app
from service.settings import Settings
from tests.fixtures.bundled import DE_EN_VERSION, NEXT_WORD_VERSION

WORDS = ["not", "have", "want", "very", "is", "good", "man", "house", "time", "to", "here", "?", "had", "so", "never"]
CONTEXTS = [f"{first} {word}" for first in ("i am", "you", "it", "a", "the", "he", "and") for word in [*WORDS, ""]][
    :100
]


def references(schema):
    """Every `$ref` of a JSON document."""
    if isinstance(schema, dict):
        yield from (value for key, value in schema.items() if key == "$ref")
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from references(part)


def test_a_missing_model_directory_is_refused_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        create_app(Settings(model_dirs=(tmp_path / "nowhere",)))


def test_an_unknown_model_is_refused_at_once():
    known = f"unknown model 'nope'; known models: de-en:{DE_EN_VERSION}, intents:2, next-word"
    with pytest.raises(UnknownModelError, match=known):
        create_app(Settings(models=("next-word:4", "nope")))


def test_the_openapi_schema_is_made_before_the_first_request(tmp_path):
    app = create_app(Settings(model_dirs=(tmp_path,), watch_seconds=60))
    with TestClient(app) as client:
        made = app.openapi_schema
        assert made is not None
        assert client.get("/openapi.json").json() == made


def test_settings_come_from_the_environment_without_others(monkeypatch):
    monkeypatch.setenv("SOFTSERVE_MAX_QUEUE_ITEMS", "7")
    assert create_app().state.settings.max_queue_items == 7


@pytest.mark.parametrize("load_first", [False, True])
def test_a_directory_without_models_is_not_ready_until_one_is_copied(
    tmp_path, copied_models, wait_until, detail_of, load_first
):
    """A pod whose volume is late must get no requests."""
    settings = Settings(model_dirs=(tmp_path / "late",), watch_seconds=0.05, threads=1, parallel_batches=1)
    settings.model_dirs[0].mkdir()
    with TestClient(create_app(settings, load_first=load_first)) as client:
        for path in ("/readyz", "/health", "/v2/health/ready"):
            response = client.get(path)
            assert response.status_code == 503
            assert "no model is loaded yet" in response.text
        answer = client.post("/v1/next-word", json={"context": "a"})
        assert detail_of(answer, 503) == "no model is loaded yet"
        assert client.get("/v1/models").json() == {"models": [], "problems": [], "object": "list", "data": []}
        shutil.copytree(copied_models / "next-word", settings.model_dirs[0] / "next-word")
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/v2/health/ready").status_code == 200
        assert client.post("/v1/next-word", json={"context": "a"}).status_code == 200


def test_a_directory_without_models_that_could_get_none_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model in .*NAME/VERSION"):
        create_app(Settings(model_dirs=(tmp_path,)))


def test_the_root_is_the_playground(client):
    response = client.get("/", follow_redirects=False)
    assert response.status_code == 200
    assert 'src="web/app.js"' in response.text


def test_the_openapi_document_is_whole(client):
    document = client.get("/openapi.json").json()
    native = {
        f"/v1/{name}"
        for name in (
            "next-word",
            "score",
            "rescore",
            "translate",
            "generate-text",
            "classify",
            "tag",
            "zero-shot",
            "embed",
            "rerank",
            "regress",
            "languages",
            "models",
            "models/{name}",
        )
    }
    assert native | {"/livez", "/readyz", "/health", "/metrics"} == set(document["paths"])
    for reference in set(references(document)):
        part = document
        for key in reference.removeprefix("#/").split("/"):
            part = part[key]
    assert "application/problem+json" in document["paths"]["/v1/score"]["post"]["responses"]["429"]["content"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", "/v1", 404), ("GET", "/v1/score", 405), ("DELETE", "/v1/models", 405)],
)
def test_wrong_routes_and_methods_are_problems(client, detail_of, method, path, status):
    assert detail_of(client.request(method, path), status)


@pytest.mark.parametrize("path", ["/%ff", "/v1/%00", "/v1/models/%2e%2e%2f%2e%2e", "/v1/models/" + "a" * 5000])
def test_rubbish_paths_are_not_found(client, detail_of, path):
    assert detail_of(client.get(path), 404)


@pytest.mark.parametrize("path", ["/livez", "/nope", "/v1/models"])
def test_every_answer_has_the_request_id(client, path):
    assert client.get(path, headers={"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert re.fullmatch("[0-9a-f]{32}", client.get(path).headers["x-request-id"])
    assert client.get(path, headers={"X-Request-Id": "not mine"}).headers["x-request-id"] != "not mine"


def test_a_bug_is_answered_with_a_problem_and_other_requests_go_on(serve, gate, detail_of):
    client = serve()
    gate.crashes_at = "crash"
    response = client.post("/v1/next-word", json={"context": "crash"})
    assert "secret" not in detail_of(response, 500)
    assert client.post("/v1/next-word", json={"context": "a"}).status_code == 200


def test_two_hundred_concurrent_requests_get_their_own_answers(library):
    expected = library.next_words(CONTEXTS, 5)

    async def ask(client, path, body):
        response = await client.post(path, json=body)
        assert response.status_code == 200, response.text
        return response.json()["results"][0]

    async def run():
        app = create_app(Settings(threads=1, models=("next-word:4", "de-en", "intents")))
        transport = httpx2.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url="http://x") as c:
            while (await c.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.01)
            words = [ask(c, "/v1/next-word", {"context": context, "top_k": 5}) for context in CONTEXTS]
            scores = [ask(c, "/v1/score", {"text": text}) for text in CONTEXTS]
            answers = await asyncio.gather(*(call for pair in zip(words, scores, strict=True) for call in pair))
            metrics = (await c.get("/metrics")).text
        return answers[::2], answers[1::2], metrics

    words, scores, metrics = asyncio.run(run())
    for answer, result in zip(words, expected, strict=True):
        assert answer["context"] == result.context
        assert [w["log_probability"] for w in answer["words"]] == pytest.approx(
            [w.log_probability for w in result.words], abs=1e-4
        )
    for answer, result in zip(scores, library.score(CONTEXTS), strict=True):
        assert answer["text"] == result.text
        assert math.isclose(answer["log_probability"], result.log_probability, abs_tol=1e-3)
    (batches,) = re.findall(
        rf'softserve_batch_items_count\{{model="next-word",version="{NEXT_WORD_VERSION}"\}} (\S+)', metrics
    )
    assert float(batches) < len(words) + len(scores)
