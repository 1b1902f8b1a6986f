"""The arenas of sessions on a GPU are limited to their weights and what they may take besides."""

import onnxruntime
import pytest

from models import ModelStore
from models.backend.footprint import weight_bytes
from models.backend.onnx import OnnxBackend
from models.errors import UnsupportedDeviceError
from models.reading import read_manifest
from service.settings import BUNDLED


def bundle_of(name):
    return ModelStore(BUNDLED).path(name)


@pytest.mark.parametrize("name", ["de-en", "intents", "next-word", "next-word:4"])
def test_a_graph_has_at_most_all_weights_dequantized(name):
    bundle = bundle_of(name)
    manifest = read_manifest(bundle)
    weights = (bundle / "weights.bin").stat().st_size
    found = weight_bytes(bundle, manifest)
    assert set(found) == set(manifest.graphs)
    for size in found.values():
        assert 4 * weights < size < 4 * weights + 2**20  # files of graphs hold few numbers


class Refused(Exception):
    pass


@pytest.mark.parametrize(("work", "limited"), [(None, False), (64 << 20, True)])
def test_onnxruntime_is_given_the_limit_of_each_graph(monkeypatch, work, limited):
    given = {}

    def session(file, options, providers):
        given.update(providers)
        raise Refused

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    bundle = bundle_of("intents")
    manifest = read_manifest(bundle)
    with pytest.raises(Exception, match="does not load"):
        OnnxBackend(bundle, manifest, device="cuda:1", work_bytes=work)
    expected = {"device_id": 1}
    if limited:
        size = weight_bytes(bundle, manifest)["classify"] + work
        expected |= {"gpu_mem_limit": size, "arena_extend_strategy": "kSameAsRequested"}
    assert given == {"CUDAExecutionProvider": expected}


def test_the_processor_has_no_limit(monkeypatch):
    bundle = bundle_of("intents")
    backend = OnnxBackend(bundle, read_manifest(bundle), device="cpu", threads=1, work_bytes=1)
    assert backend.device == "cpu"
    with pytest.raises(UnsupportedDeviceError):
        OnnxBackend(bundle, read_manifest(bundle), device="cuda:7:8", work_bytes=1)
