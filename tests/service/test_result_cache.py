"""The cache of results over HTTP: every door, keys, `no-store`, reload, metrics."""

import concurrent.futures

import pytest
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import Settings

KEYS = ["first-key-of-the-tests", "second-key-of-the-tests"]
ADMINISTRATOR = "administrators-key-of-the-tests"


def ask(client, *contexts, top_k=3, **headers):
    body = {"context": list(contexts), "top_k": top_k}
    response = client.post("/v1/next-word", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response


def test_without_the_setting_nothing_is_cached(serve, gate):
    client = serve(prefix_cache_mb=0)
    assert [ask(client, "thank you").headers.get("cache-status") for _ in range(2)] == [None, None]
    assert gate.contexts == ["thank you"] * 2


def test_a_known_input_is_answered_bit_for_bit_without_the_model(serve, gate, metric):
    client = serve(result_cache_mb=1, prefix_cache_mb=0)
    first, second = (ask(client, "thank you", "we had") for _ in range(2))
    assert first.content == second.content
    assert [each.headers["cache-status"] for each in (first, second)] == ["softserve; fwd=miss", "softserve; hit"]
    mixed = ask(client, "we had", "how are", "how are")
    assert mixed.headers["cache-status"] == 'softserve; fwd=miss; detail="1 of 3 inputs"'
    assert gate.contexts == ["thank you", "we had", "how are"]
    name = "softserve_result_cache_inputs_total"
    assert [metric(client, name, outcome=each) for each in ("hit", "miss", "collapsed")] == [3, 3, 1]
    assert 1000 < metric(client, "softserve_result_cache_bytes") < 100_000


def test_other_parameters_are_another_result(serve, gate):
    client = serve(result_cache_mb=1, prefix_cache_mb=0)
    ask(client, "thank you")
    assert len(ask(client, "thank you", top_k=2).json()["results"][0]["words"]) == 2
    assert gate.contexts == ["thank you"] * 2


@pytest.mark.parametrize("directive", ["no-store", "max-age=0, No-Store"])
def test_no_store_neither_reads_nor_writes(serve, gate, directive):
    client = serve(result_cache_mb=1, prefix_cache_mb=0)
    headers = {"Cache-Control": directive}
    for given in (headers, {}, headers, {}):
        assert ("cache-status" in ask(client, "thank you", **given).headers) == (not given)
    assert gate.contexts == ["thank you"] * 3


def test_requests_at_once_are_computed_once(serve, gate, wait_until):
    client = serve(result_cache_mb=1, prefix_cache_mb=0)
    gate.opened.clear()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, client, "thank you") for _ in range(4)]
        wait_until(gate.entered.is_set)
        gate.opened.set()
        answers = [each.result() for each in asking]
    assert len({each.content for each in answers}) == 1
    assert gate.contexts == ["thank you"]


def test_other_doors_find_the_same_results(serve, gate):
    client = serve(result_cache_mb=1, prefix_cache_mb=0)
    ask(client, "thank you", top_k=10)
    text = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["thank you"]}
    body = {"inputs": [text], "outputs": [{"name": "word"}], "parameters": {"top_k": 10}}
    response = client.post("/v2/models/next-word/infer", json=body)
    assert (response.status_code, response.headers["cache-status"]) == (200, "softserve; hit")
    assert gate.contexts == ["thank you"]


def test_completions_that_draw_are_not_cached(serve):
    client = serve(result_cache_mb=1, prefix_cache_mb=0)
    body = {"model": "next-word", "prompt": "thank you", "max_tokens": 1, "seed": 1}
    for _ in range(2):
        response = client.post("/v1/completions", json=body)
        assert response.status_code in (200, 500)  # the gate has no function that draws
        assert "cache-status" not in response.headers


@pytest.fixture
def keyed(tmp_path, wait_until):
    (tmp_path / "keys").write_text("\n".join(KEYS))
    (tmp_path / "admin").write_text(ADMINISTRATOR)
    settings = Settings(
        threads=1,
        models=("next-word:4",),
        api_keys=tmp_path / "keys",
        admin_keys=tmp_path / "admin",
        result_cache_mb=1,
        share_prefix_cache=True,
    )
    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


def status(client, key, path="/v1/next-word", **body):
    body = body or {"context": "thank you", "top_k": 3}
    response = client.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
    assert response.status_code == 200, response.text
    return response.headers["cache-status"]


def test_no_answer_crosses_keys(keyed):
    assert [status(keyed, key) for key in (*KEYS, ADMINISTRATOR)] == ["softserve; fwd=miss"] * 3
    assert [status(keyed, key) for key in (*KEYS, ADMINISTRATOR)] == ["softserve; hit"] * 3


def test_results_end_with_the_model_that_made_them(keyed, wait_until, metric):
    assert [status(keyed, KEYS[0]) for _ in range(2)] == ["softserve; fwd=miss", "softserve; hit"]
    headers = {"Authorization": f"Bearer {ADMINISTRATOR}"}
    assert keyed.post("/v1/admin/models/next-word:4/load", headers=headers).status_code == 200
    wait_until(lambda: metric(keyed, "softserve_result_cache_bytes") == 0)
    assert status(keyed, KEYS[0]) == "softserve; fwd=miss"


def test_refused_inputs_are_not_cached(keyed):
    for _ in range(2):
        body = {"context": "a " * 40_000}
        response = keyed.post("/v1/next-word", json=body, headers={"Authorization": f"Bearer {KEYS[0]}"})
        assert response.status_code == 422
        assert "cache-status" not in response.headers


def test_the_translation_protocols_use_the_cache(wait_until):
    with TestClient(create_app(Settings(threads=1, models=("de-en",), result_cache_mb=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        texts = {"text": ["Guten Morgen!"], "target_lang": "EN-US", "source_lang": "DE"}
        query = {"q": "Guten Morgen!", "source": "de", "target": "en"}
        answers = [
            client.post(path, json=body)
            for path, body in (("/v2/translate", texts), ("/translate", query))
            for _ in "ab"
        ]
        assert [each.status_code for each in answers] == [200] * 4
        assert [each.headers["cache-status"] for each in answers] == [
            "softserve; fwd=miss",
            "softserve; hit",
            "softserve; hit",
            "softserve; hit",
        ]
        assert answers[0].content == answers[1].content
        assert answers[2].content == answers[3].content
