from datetime import UTC, datetime
from hashlib import sha256

import pytest

from models import BundleError
from service.settings import BUNDLED


def test_models_are_listed_with_what_they_are(client, library):
    manifest = library.manifest
    expected = {
        "name": manifest.name,
        "version": manifest.version,
        "task": "language-model",
        "description": manifest.description,
        "licence": manifest.licence,
        "state": "ready",
        "digest": sha256((BUNDLED / manifest.name / str(manifest.version) / "manifest.json").read_bytes()).hexdigest(),
        "operations": ["next-word", "score"],
        "reads": "text",
        "vocab_size": manifest.config.vocab_size,
        "kernels": [kernel.name for kernel in manifest.softmax.kernels],
        "languages": None,
        "classes": None,
        "threshold": None,
        "calibration_examples": None,
        "limits": {"max_tokens": manifest.config.limits.max_tokens, "max_output_tokens": None, "max_pixels": None},
        "quality": [quality.model_dump() for quality in manifest.quality],
    }
    listed, day = client.get("/v1/models").json(), datetime.fromisoformat(manifest.provenance.date)
    openai = {
        "id": manifest.name,
        "object": "model",
        "created": day.replace(tzinfo=UTC).timestamp(),
        "owned_by": "softserve",
    }
    assert listed == {"models": [expected], "problems": [], "object": "list", "data": [openai]}
    for name in (manifest.name, f"{manifest.name}:{manifest.version}"):
        assert client.get(f"/v1/models/{name}").json() == {**openai, "id": name, "models": [expected]}


@pytest.mark.parametrize("name", ["nope", "next-word:99", "next-word:", ":1", "..", "next-word:x", "%ff", "%00"])
def test_unknown_models_name_the_known_ones(client, library, detail_of, name):
    response = client.get("/v1/models/" + name.replace("..", "%2e%2e"))
    assert f"known models: next-word:{library.manifest.version}" in detail_of(response, 404)


def test_facts_of_other_tasks_appear(client, monkeypatch):
    (served,) = client.app.state.served_models.served.values()
    summary = {"dimensions": 384, "limits": {"max_tokens": 7, "max_seconds": 2.5}}
    monkeypatch.setattr(type(served.manifest.config), "summary", lambda config: summary)
    (found,) = client.get("/v1/models").json()["models"]
    assert found["dimensions"] == 384
    assert found["limits"] == {"max_tokens": 7, "max_output_tokens": None, "max_pixels": None, "max_seconds": 2.5}
    assert found["vocab_size"] is None


def test_what_does_not_load_or_cannot_be_read_is_listed(client, monkeypatch):
    registry = client.app.state.served_models
    (directory,) = registry.directories
    error = BundleError("x", ["weights.bin is missing", "y" * 2000])
    monkeypatch.setattr(registry, "_failures", {directory / "next-word" / "7": error})
    entries = {directory: "it cannot be read", directory / "b": "it is no directory"}
    monkeypatch.setattr(registry, "_entry_problems", entries)
    assert client.get("/v1/models").json()["problems"] == [
        {"bundle": "bundled", "problem": "it cannot be read"},
        {"bundle": "b", "problem": "it is no directory"},
        {"bundle": "next-word/7", "problem": ("weights.bin is missing; " + "y" * 2000)[:1000]},
    ]
