"""API keys with names, weights and limits: the file, refusals in the form of each protocol, metrics, reload."""

import re
import time

import pytest
from fastapi.testclient import TestClient

from service.engine.caller import Account
from service.engine.quotas import Limits, Quota
from service.engine.tenants import LimitReached, Tenant, Tenants
from service.http.key_file import KeyFileError, key_identity, read_key_file
from service.http.key_files import KeyFiles
from service.http.quota_headers import quota_headers
from service.observability.metrics import Metrics
from service.server.app import create_app
from service.settings import Settings

SHOP, SHOP_NEW, DESK = "the-key-of-the-shop", "the-new-key-of-the-shop", "the-key-of-the-desk"
FILE = f"""
# keys of two departments
[[keys]]
name = "shop"
key = ["{SHOP}", "{SHOP_NEW}"]
weight = 2
requests_per_minute = 100
texts_per_minute = 1000
characters_per_minute = 10_000
concurrent_texts = 64
characters_per_day = 1_000_000

[[keys]]
name = "desk"
key = "{DESK}"
"""


def written(tmp_path, content):
    path = tmp_path / "keys"
    path.write_text(content)
    return path


# ---- the file ----


def test_a_table_has_a_name_a_weight_and_limits(tmp_path):
    found = read_key_file(written(tmp_path, FILE))
    assert found.keys == {SHOP: "shop", SHOP_NEW: "shop", DESK: "desk"}
    assert found.tenants == (
        Tenant(
            id="user shop",
            name="shop",
            weight=2.0,
            limits=Limits(
                requests_per_minute=100,
                texts_per_minute=1000,
                characters_per_minute=10_000,
                concurrent_texts=64,
                characters_per_day=1_000_000,
            ),
        ),
        Tenant(id="user desk", name="desk"),
    )


def test_a_list_of_keys_has_identifiers_that_do_not_depend_on_their_order(tmp_path):
    found = read_key_file(written(tmp_path, f"# keys\n{SHOP}\n{DESK}\n"))
    assert (found.keys, found.tenants) == ({SHOP: key_identity(SHOP), DESK: key_identity(DESK)}, ())
    assert SHOP not in key_identity(SHOP)


ENTRY = f'[[keys]]\nname = "shop"\nkey = "{SHOP}"\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (ENTRY + "weight = 0\n", r"keys\.0\.weight: must be at least 0\.01"),
        (ENTRY + "requests_per_minute = 0\n", r"requests_per_minute: must be at least 1"),
        (ENTRY + "requests_per_hour = 5\n", r"requests_per_hour: unknown field"),
        (ENTRY + 'texts_per_minute = "5"\n', r"texts_per_minute: must be a whole number"),
        (ENTRY + "weight = \n", "is not TOML"),
        ('[[keys]]\nname = "shop"\n', r"keys\.0\.key: is missing"),
        ('[[keys]]\nname = "shop"\nkey = []\n', r"key: must have 1 or more items"),
        ('[[keys]]\nname = "a b"\nkey = "x"\n', r"name: must match"),
        ('[[keys]]\nname = "shop"\nkey = "short"\n', "shop: a key has 16 visible characters or more"),
        (ENTRY + ENTRY.replace(SHOP, DESK), "two entries have the name shop"),
        (ENTRY + ENTRY.replace("shop", "desk", 1), "desk: the key is in the file twice"),
    ],
)
def test_mistakes_are_named_without_the_key(tmp_path, content, said):
    with pytest.raises(KeyFileError, match=said) as caught:
        read_key_file(written(tmp_path, content))
    assert not any(key in str(caught.value) for key in (SHOP, DESK, "short"))


# ---- the headers ----


def test_headers_are_structured_fields():
    quotas = [Quota("requests", 100, 60, 99, 0.6), Quota("concurrent-texts", 64, None, 64, None)]
    assert quota_headers(quotas) == [
        (b"ratelimit-policy", b'"requests";q=100;w=60, "concurrent-texts";q=64'),
        (b"ratelimit", b'"requests";r=99;t=1, "concurrent-texts";r=64'),
    ]
    assert quota_headers([]) == []


# ---- the service ----


def entry(name, key, **limits):
    return f'[[keys]]\nname = "{name}"\nkey = "{key}"\n' + "".join(f"{each} = {n}\n" for each, n in limits.items())


@pytest.fixture
def serving(tmp_path, wait_until):
    started = []

    def start(content, *models):
        path = written(tmp_path, content)
        client = TestClient(create_app(Settings(threads=1, models=models or ("next-word:4",), api_keys=path)))
        started.append(client.__enter__())
        wait_until(lambda: client.get("/readyz").status_code == 200)
        return client

    yield start
    for client in started:
        client.__exit__(None, None, None)


def ask(client, key, context="thank you"):
    return client.post(
        "/v1/next-word", json={"context": context, "top_k": 1}, headers={"Authorization": f"Bearer {key}"}
    )


def test_a_key_beyond_its_limit_is_refused_and_another_is_not(serving, detail_of, metric):
    client = serving(entry("shop", SHOP, requests_per_minute=2) + entry("desk", DESK))
    first, second, third = (ask(client, SHOP) for _ in range(3))
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.headers["ratelimit-policy"] == '"requests";q=2;w=60'
    assert [re.sub(";t=.*", "", each.headers["ratelimit"]) for each in (first, second, third)] == [
        '"requests";r=1',
        '"requests";r=0',
        '"requests";r=0',
    ]
    assert detail_of(third, 429) == "the limit of the API key is reached: 2 requests in a minute"
    assert 1 <= int(third.headers["retry-after"]) <= 30
    other = ask(client, DESK)
    assert other.status_code == 200
    assert "ratelimit" not in other.headers
    assert metric(client, "softserve_key_requests_total", key="shop") == 2
    assert metric(client, "softserve_key_refused_total", key="shop", limit="requests") == 1
    assert metric(client, "softserve_key_characters_total", key="desk") == len("thank you")
    assert not any(key in client.get("/metrics").text for key in (SHOP, DESK))


@pytest.mark.parametrize(
    ("limits", "context", "status"),
    [
        ({"texts_per_minute": 3}, ["thank", "you"], 429),
        ({"characters_per_minute": 15}, "thank you", 429),
        ({"characters_per_day": 15}, "thank you", 429),
        ({"concurrent_texts": 3}, ["thank", "you"], 200),
        ({"texts_per_minute": 1}, ["thank", "you"], 413),
    ],
    ids=str,
)
def test_texts_and_characters_are_limited(serving, limits, context, status):
    client = serving(entry("shop", SHOP, **limits))
    assert ask(client, SHOP, context).status_code == (413 if status == 413 else 200)
    assert ask(client, SHOP, context).status_code == status


def test_a_request_that_computes_nothing_costs_no_characters(serving):
    too_long = "a " * 40_000
    client = serving(entry("shop", SHOP, characters_per_day=100_000))
    assert [ask(client, SHOP, too_long).status_code for _ in range(3)] == [422] * 3
    assert ask(client, SHOP, "thank you").headers["ratelimit"].startswith('"characters-per-day";r=99991;')


def test_two_keys_of_an_entry_share_its_limits(serving):
    client = serving(entry("shop", SHOP, requests_per_minute=1).replace(f'"{SHOP}"', f'["{SHOP}", "{SHOP_NEW}"]'))
    assert (ask(client, SHOP).status_code, ask(client, SHOP_NEW).status_code) == (200, 429)


def test_each_protocol_has_its_own_form_of_a_refusal(serving):
    client = serving(entry("shop", SHOP, characters_per_day=3), "de-en", "next-word:4")
    headers = {"Authorization": f"Bearer {SHOP}"}

    def post(path, body):
        response = client.post(path, json=body, headers=headers)
        return response.status_code, response.json()

    assert ask(client, SHOP, "so").status_code == 200
    texts = {"text": ["ja"], "target_lang": "EN-US"}
    status, content = post("/v2/translate", texts)
    assert (status, set(content)) == (456, {"message", "detail"})
    status, content = post("/v1/completions", {"model": "next-word", "prompt": "so", "max_tokens": 1})
    assert (status, content["error"]["code"], content["error"]["type"]) == (429, *["insufficient_quota"] * 2)
    status, content = post("/translate", {"q": "ja", "source": "de", "target": "en"})
    assert (status, set(content)) == (429, {"error"})
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["so"]}
    status, content = post("/v2/models/next-word/infer", {"inputs": [tensor], "outputs": [{"name": "word"}]})
    assert (status, set(content)) == (429, {"error"})


def test_the_usage_of_deepl_has_the_budget_of_the_day(serving):
    """The limit counts requests of all protocols, so its count does too; the other key has none."""
    keys = entry("shop", SHOP, characters_per_day=20) + entry("desk", DESK)
    client = serving(keys, "de-en", "next-word:4")
    assert ask(client, SHOP, "thank you").status_code == 200
    assert client.post("/v2/translate", json={"text": ["Guten Tag"], "target_lang": "EN-US"}, headers=deepl(SHOP))
    usage = [client.get("/v2/usage", headers=deepl(key)).json() for key in (SHOP, DESK)]
    assert usage == [
        {"character_count": 18, "character_limit": 20},
        {"character_count": 0, "character_limit": 10**12},
    ]


def deepl(key):
    return {"Authorization": f"DeepL-Auth-Key {key}"}


def test_keys_are_read_again_where_the_file_changes(serving, tmp_path, wait_until, monkeypatch, caplog):
    monkeypatch.setattr(KeyFiles.watch, "__defaults__", (0.01,))
    client = serving(entry("shop", SHOP, requests_per_minute=1))
    assert [ask(client, SHOP).status_code for _ in range(2)] == [200, 429]
    written(tmp_path, "[[keys]]\n")
    wait_until(lambda: "stay as they were" in caplog.text)
    assert ask(client, SHOP).status_code == 429
    written(tmp_path, entry("desk", DESK))
    wait_until(lambda: ask(client, DESK).status_code == 200)
    assert ask(client, SHOP).status_code == 401


def test_series_are_bounded_and_go_with_their_key():
    metrics = Metrics()
    tenants = Tenants(metrics)
    tenants.replace(Tenant(id=f"user {number}", name=f"key-{number}") for number in range(150))
    text = metrics.text().decode()
    assert len(set(re.findall(r'softserve_key_requests_total\{key="([^"]+)"', text))) == 101
    tenants.replace([Tenant(id="user 1", name="key-1")])
    text = metrics.text().decode()
    assert set(re.findall(r'softserve_key_requests_total\{key="([^"]+)"', text)) == {"key-1"}


def test_counters_stay_where_the_keys_are_read_again():
    tenants = Tenants(Metrics())
    tenant = Tenant(id="user shop", name="shop", limits=Limits(characters_per_day=10))
    for _ in range(2):
        tenants.replace([tenant])
    lease = tenants.begin("user shop", Account())
    lease.take(["1234567"])
    tenants.replace([tenant])
    with pytest.raises(LimitReached) as caught:
        tenants.begin("user shop", Account()).take(["1234"])
    assert caught.value.of_day
    assert caught.value.retry_after <= 86_400 - time.time() % 86_400 + 1
