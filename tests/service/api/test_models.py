from hashlib import sha256

import pytest

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
        "limits": {"max_tokens": manifest.config.limits.max_tokens, "max_output_tokens": None, "max_pixels": None},
        "quality": [quality.model_dump() for quality in manifest.quality],
    }
    assert client.get("/v1/models").json() == {"models": [expected]}
    for name in (manifest.name, f"{manifest.name}:{manifest.version}"):
        assert client.get(f"/v1/models/{name}").json() == {"models": [expected]}


@pytest.mark.parametrize("name", ["nope", "next-word:99", "next-word:", ":1", "..", "next-word:x", "%ff", "%00"])
def test_unknown_models_name_the_known_ones(client, library, detail_of, name):
    response = client.get("/v1/models/" + name.replace("..", "%2e%2e"))
    assert f"known models: next-word:{library.manifest.version}" in detail_of(response, 404)
