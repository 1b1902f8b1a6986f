"""Loading and unloading models while others serve."""

import hashlib
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import Settings

ADMIN, USER = "admin-key-of-some-length", "user-key-of-some-length"


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory, wait_until):
    """The service for tests that load and unload nothing."""
    directory = tmp_path_factory.mktemp("keys")
    (directory / "admins").write_text(ADMIN)
    (directory / "users").write_text(USER)
    keys = {"admin_keys": directory / "admins", "api_keys": directory / "users"}
    with TestClient(create_app(Settings(threads=1, models=("next-word:4",), **keys))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        yield client


@pytest.fixture
def start(tmp_path, copied_models, wait_until):
    """Serves copies of models that may be changed on disk."""
    (tmp_path / "admins").write_text(ADMIN)
    clients = []

    def begin(**settings):
        defaults = {"model_dirs": (copied_models,), "admin_keys": tmp_path / "admins", "threads": 1}
        settings = {**defaults, "parallel_batches": 1, **settings}  # one, for the warm-up is shorter
        client = TestClient(create_app(Settings(**settings)))
        client.__enter__()
        clients.append(client)
        wait_until(lambda: client.get("/readyz").status_code == 200)
        return client

    yield begin
    for client in clients:
        client.__exit__(None, None, None)


def admin(client, call, key=ADMIN):
    return client.post(f"/v1/admin/models/{call}", headers={"Authorization": f"Bearer {key}"})


def versions(client):
    return [(each["name"], each["version"]) for each in client.get("/v1/models").json()["models"]]


def ask(client, **body):
    return client.post("/v1/next-word", json={"context": "thank you", "top_k": 1, **body})


def copy_version(models, version):
    """Another version of the model on disk."""
    target = models / "next-word" / str(version)
    shutil.copytree(models / "next-word" / "1", target)
    manifest = target / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": version}))
    return target


def test_versions_come_and_go(start, copied_models):
    client = start()
    copy_version(copied_models, 2)
    loaded = admin(client, "next-word/load").json()
    assert (loaded["name"], loaded["version"]) == ("next-word", 2)
    assert versions(client) == [("next-word", 1), ("next-word", 2)]
    assert ask(client).json()["version"] == 2
    assert admin(client, "next-word:2/unload").json() == {"unloaded": ["next-word:2"]}
    assert ask(client).json()["version"] == 1
    assert admin(client, "next-word/unload").json() == {"unloaded": ["next-word:1"]}
    assert versions(client) == []
    assert ask(client).status_code == 404
    assert client.get("/readyz").status_code == 200
    assert admin(client, "next-word:1/load").status_code == 200
    assert ask(client).json()["version"] == 1


def test_what_is_not_served_says_so_in_the_metrics(start, metric, wait_until):
    client = start()
    assert metric(client, "softserve_model_info", model="next-word") == 1
    admin(client, "next-word/load")
    assert metric(client, "softserve_model_info", model="next-word") == 1
    admin(client, "next-word/unload")
    wait_until(lambda: metric(client, "softserve_model_info", model="next-word") == 0)
    assert "next-word" not in client.get("/metrics").text


@pytest.mark.parametrize("name", ["nope", "next-word:7", "..", "..%2F..%2Fetc", "next-word%2F1", "%00"])
def test_unknown_names_name_the_known_ones(unchanged, name):
    for call in ("load", "unload"):
        response = admin(unchanged, f"{name}/{call}")
        assert response.status_code == 404
        assert "detail" in response.json()


def test_a_bundle_that_does_not_load_leaves_the_old_one_serving(start, copied_models, detail_of):
    client = start()
    with (copied_models / "next-word" / "1" / "tokenizer.json").open("ab") as file:
        file.write(b" ")
    assert "tokenizer.json does not match its checksum" in detail_of(admin(client, "next-word/load"), 409)
    assert ask(client).status_code == 200
    assert client.get("/readyz").status_code == 200


def other_network(bundle, monkeypatch):
    """The graphs load, and refuse the state that the model hands them."""
    path = bundle / "manifest.json"
    content = json.loads(path.read_text())
    content["config"]["network"]["hidden_size"] -= 1
    path.write_text(json.dumps(content))
    return "its warm-up failed: InvalidArgument"


def no_memory(bundle, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("service.engine.replicas.warm_up", fail)
    return "its warm-up failed: MemoryError"


def no_disk(bundle, monkeypatch):
    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("service.engine.loading.sha256_of", fail)
    return "cannot be read: OSError: [Errno 5] Input/output error"


@pytest.mark.parametrize("spoil", [other_network, no_memory, no_disk])
def test_any_failure_to_load_is_a_conflict_and_leaves_the_old_one_serving(
    start, copied_models, detail_of, monkeypatch, spoil
):
    client = start()
    expected = ask(client).json()
    detail = spoil(copied_models / "next-word" / "1", monkeypatch)
    assert detail in detail_of(admin(client, "next-word/load"), 409)
    assert ask(client).json() == expected


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "missing", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {},
}


def panicking_version(models, version):
    """Another version whose tokenizer loads, and panics at the first text: no `Exception`, since it is Rust's."""
    target = copy_version(models, "draft")
    manifest, tokenizer = target / "manifest.json", target / "tokenizer.json"
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()) | {"post_processor": TEMPLATE}))
    content = json.loads(manifest.read_text()) | {"version": version}
    content["files"]["tokenizer.json"] = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(content))
    target.rename(target.with_name(str(version)))


def test_a_panic_of_a_library_is_a_conflict_too(start, copied_models, detail_of):
    client = start()
    panicking_version(copied_models, 2)
    detail = detail_of(admin(client, "next-word/load"), 409)
    assert "its warm-up failed: NativeError: the tokenizer failed: PanicException" in detail
    assert ask(client).json()["version"] == 1


def test_a_panic_of_a_library_does_not_end_the_watch(start, copied_models, wait_until, caplog):
    client = start(watch_seconds=0.05)
    panicking_version(copied_models, 2)
    wait_until(lambda: any("PanicException" in record.getMessage() for record in caplog.records))
    copy_version(copied_models, 3)
    wait_until(lambda: versions(client) == [("next-word", 3)])


def test_a_panic_of_a_library_at_the_start_is_told(copied_models, wait_until, detail_of):
    panicking_version(copied_models, 2)
    with TestClient(create_app(Settings(model_dirs=(copied_models,), threads=1))) as client:
        wait_until(lambda: "failed" in client.get("/readyz").json()["detail"])
        assert "PanicException" in detail_of(client.get("/readyz"), 503)


@pytest.mark.parametrize("key", [USER, "", "x"])
def test_other_keys_administrate_nothing(unchanged, detail_of, key):
    for path in ("next-word/load", "next-word/unload", "nowhere"):
        detail_of(admin(unchanged, path, key), 401)
    assert unchanged.get("/v1/models", headers={"X-API-Key": ADMIN}).status_code == 200


def test_without_a_key_file_there_is_no_administration(client, detail_of):
    detail_of(admin(client, "next-word/load"), 404)
    assert not [path for path in client.get("/openapi.json").json()["paths"] if "admin" in path]


def words_of(answer):
    (result,) = answer.json()["results"]
    return {each["word"]: each["probability"] for each in result["words"]}


def test_reloads_under_traffic_lose_nothing(start):
    client = start(parallel_batches=3)
    expected = pytest.approx(words_of(ask(client)), rel=1e-4)  # rounding depends on the other texts of a batch
    stop, wrong = threading.Event(), []

    def visit():
        count = 0
        while not stop.is_set():
            answer = ask(client)
            count += 1
            if answer.status_code != 200 or words_of(answer) != expected:
                wrong.append(answer.text)
            time.sleep(0.01)  # so that loading has a processor
        return count

    with ThreadPoolExecutor(4) as pool:
        visitors = [pool.submit(visit) for _ in range(4)]
        for _ in range(4):
            assert admin(client, "next-word/load").status_code == 200
        stop.set()
        assert sum(each.result() for each in visitors) > 20
    assert wrong == []
    assert versions(client) == [("next-word", 1)]


# ---- watching a directory ----


def test_a_watched_directory_is_followed(start, copied_models, wait_until):
    client = start(watch_seconds=0.05)
    second = copy_version(copied_models, 2)
    wait_until(lambda: versions(client) == [("next-word", 2)])
    assert ask(client).json()["version"] == 2
    shutil.rmtree(second)
    wait_until(lambda: versions(client) == [("next-word", 1)])
    (digest,) = [each["digest"] for each in client.get("/v1/models").json()["models"]]
    manifest = copied_models / "next-word" / "1" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"description": "changed"}))
    wait_until(lambda: client.get("/v1/models").json()["models"][0]["digest"] != digest)
    assert ask(client).status_code == 200


def test_a_bundle_that_is_still_being_copied_is_served_when_it_is_whole(start, copied_models, wait_until, caplog):
    client = start(watch_seconds=0.05)
    source, target = copied_models / "next-word" / "1", copied_models / "next-word" / "2"
    target.mkdir()
    manifest = json.loads((source / "manifest.json").read_text()) | {"version": 2}
    (target / "manifest.json").write_text(json.dumps(manifest))
    wait_until(lambda: any("does not load" in record.getMessage() for record in caplog.records))
    assert ask(client).json()["version"] == 1
    for file in source.iterdir():
        if file.name != "manifest.json":
            shutil.copy(file, target)
    wait_until(lambda: versions(client) == [("next-word", 2)])


@pytest.mark.parametrize("models", [(), ("next-word",)])
def test_an_unreadable_directory_leaves_what_is_served(start, copied_models, wait_until, caplog, models):
    client = start(watch_seconds=0.05, models=models)
    copied_models.rename(copied_models.with_name("elsewhere"))
    wait_until(lambda: any("cannot be read" in record.getMessage() for record in caplog.records))
    time.sleep(0.2)
    assert sum("cannot be read" in record.getMessage() for record in caplog.records) == 1  # not again and again
    assert ask(client).status_code == 200
    copied_models.with_name("elsewhere").rename(copied_models)
    copy_version(copied_models, 2)
    wait_until(lambda: versions(client) == [("next-word", 2)])


# ---- what does not load ----


def test_a_failed_load_is_listed_until_it_loads(start, copied_models, detail_of, metric, caplog):
    client = start()
    second = copy_version(copied_models, 2)
    (second / "weights.bin").rename(second / "moved")
    os.mkfifo(second / "weights.bin")
    problems = "weights.bin cannot be used: it is a FIFO, not a file; moved has no checksum in files"
    assert problems in detail_of(admin(client, "next-word/load"), 409)
    assert client.get("/v1/models").json()["problems"] == [{"bundle": "next-word/2", "problem": problems}]
    assert metric(client, "softserve_model_load_failures_total", reason="invalid") == 1
    assert metric(client, "softserve_bundle_problems") == 1
    assert f"{second} does not load: {problems}" in caplog.text
    (second / "moved").replace(second / "weights.bin")
    assert admin(client, "next-word/load").status_code == 200
    assert client.get("/v1/models").json()["problems"] == []
    assert metric(client, "softserve_bundle_problems") == 0


def test_a_failure_is_forgotten_with_its_files(start, copied_models):
    client = start()
    second = copy_version(copied_models, 2)
    (second / "weights.bin").unlink()
    assert admin(client, "next-word/load").status_code == 409
    shutil.rmtree(second)
    assert admin(client, "next-word/load").status_code == 200
    assert client.get("/v1/models").json()["problems"] == []
