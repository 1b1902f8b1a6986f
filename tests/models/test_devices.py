"""Bundled models on a device say what they say on the processor: on a GPU with `make test-gpu`, and on the processor
itself, which drives the same code."""

import os

import onnxruntime
import pytest

from models import ModelStore
from models.backend.onnx import OnnxBackend
from models.backend.resident import OnnxResident
from models.decoding.beam_search import SearchOptions
from models.store import load_bundle
from service.settings import BUNDLED
from tests.fixtures.optional_tools import missing

_GPU = "CUDAExecutionProvider" in onnxruntime.get_available_providers() or "SOFTSERVE_REQUIRE_GPU" in os.environ
_NEEDS_GPU = pytest.mark.skipif(not _GPU, reason=missing("onnxruntime-gpu"))
TEXTS = ["we had a very", "thank you", "please set an alarm for seven in the morning and another one for eight"]
SENTENCES = ["Guten Morgen!", "Ich habe schon lange nach so etwas gesucht.", "Wo ist der Bahnhof?"]
TOLERANCE = 2e-3
"""Of a probability: a GPU sums in another order, and may multiply in TF32."""


GRAPHS = "graphs for cuda on the cpu"


@pytest.fixture(params=["cpu", GRAPHS, pytest.param("cuda", marks=_NEEDS_GPU)], scope="module")
def device(request):
    return request.param


@pytest.fixture(scope="module")
def on_cpu():
    return ModelStore(BUNDLED)


def load(name, device):
    version = ModelStore(BUNDLED).path(name)
    if device == GRAPHS:
        return load_bundle(version, graphs="cuda")
    model = load_bundle(version, device=device)
    assert model.backend.device == device
    return model


def test_its_provider_is_the_first_of_every_session(device):
    backend = load("de-en", device).backend
    assert isinstance(backend, OnnxBackend)
    wanted = "CUDAExecutionProvider" if device == "cuda" else "CPUExecutionProvider"
    assert {session.get_providers()[0] for session in backend._sessions.values()} == {wanted}


def test_next_words_and_scores(device, on_cpu):
    model, reference = load("next-word:4", device), on_cpu.load("next-word:4")
    for ours, theirs in zip(model.next_words(TEXTS), reference.next_words(TEXTS), strict=True):
        known = {word.word: word.probability for word in theirs.words}
        assert known == pytest.approx({word.word: word.probability for word in ours.words}, abs=TOLERANCE)
    ours, theirs = model.score(TEXTS), reference.score(TEXTS)
    assert [s.log_probability for s in ours] == pytest.approx([s.log_probability for s in theirs], rel=TOLERANCE)


def test_a_state_goes_on_where_it_was_made(device, on_cpu):
    model = load("next-word:4", device)
    (start,) = model.next_words(["we had a"])
    (ours,) = model.next_words(["very"], after=[start.prefix])
    (theirs,) = on_cpu.load("next-word:4").next_words(["we had a very"])
    assert ours.words[0].word == theirs.words[0].word
    assert ours.entropy == pytest.approx(theirs.entropy, abs=10 * TOLERANCE)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_translations(device, on_cpu, beam_size):
    """Caches of keys and values stay on the device from step to step; sentences join and leave."""
    ours = load("de-en", device).translate(SENTENCES, beam_size=beam_size)
    theirs = on_cpu.load("de-en").translate(SENTENCES, beam_size=beam_size)
    for one, other in zip(ours, theirs, strict=True):
        best, expected = one.translations[0], other.translations[0]
        assert best.score == pytest.approx(expected.score, abs=0.05)  # int8 on the CPU, float16 on the GPU
        near_tie = beam_size > 1 and abs(best.score - expected.score) < 0.02
        assert best.text == expected.text or near_tie


def test_caches_stay_on_the_device(device):
    decoding = load("de-en", device).start_decoding(2)
    decoding.add([(5, 6, 7)], [("key", SearchOptions(), 20)])
    decoding.step()
    resident = decoding._resident
    assert isinstance(resident, OnnxResident)
    before = {name: value.data_ptr() for name, value in resident._state.items()}
    decoding.step()
    assert {value.device_name() for value in resident._state.values()} == {"cuda" if device == "cuda" else "cpu"}
    assert {name: value.data_ptr() for name, value in resident._state.items()} == before, "written in place"


def test_classes(device, on_cpu):
    ours = load("intents", device).classify(TEXTS, top_k=5, calibration="none")
    theirs = on_cpu.load("intents").classify(TEXTS, top_k=5, calibration="none")
    assert [each.labels[0].label for each in ours] == [each.labels[0].label for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.labels[0].probability == pytest.approx(other.labels[0].probability, abs=0.02)  # int8


def test_a_batch_does_not_change_an_answer(device):
    model = load("intents", device)
    together, alone = model.classify(TEXTS), [model.classify([text])[0] for text in TEXTS]
    for one, other in zip(together, alone, strict=True):
        assert one.labels[0].probability == pytest.approx(other.labels[0].probability, abs=TOLERANCE)
