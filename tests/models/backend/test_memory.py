"""Runs through bindings, as on a GPU, equal plain runs; buffers are used again, by one thread each."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from models import ModelStore
from models.backend import memory
from models.backend.memory import DeviceMemory, HostMemory, PinnedBuffers
from service.settings import BUNDLED
from tests.fixtures.bundled import NEXT_WORD_SIZE


@pytest.fixture(scope="module")
def session():
    return ModelStore(BUNDLED).load("next-word:4", threads=1).backend._sessions["next_words"]


def inputs(count, length, seed=0):
    tokens = np.random.default_rng(seed).integers(2, 100, (count, length))
    zeros = np.zeros((2, count, NEXT_WORD_SIZE), np.float32)
    return {"tokens": tokens, "lengths": np.full(count, length), "hidden": zeros, "cell": zeros, "k": np.array(3)}


OUTPUTS = ["words", "log_probabilities"]


@pytest.mark.parametrize("count", [1, 7])
def test_a_device_computes_what_the_host_computes(session, count):
    device = DeviceMemory("cpu", 0)
    for length in (5, 2, 9):
        given = inputs(count, length)
        for ours, theirs in zip(
            device.run(session, given, OUTPUTS), HostMemory().run(session, given, OUTPUTS), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_results_outlive_the_next_run(session):
    device = DeviceMemory("cpu", 0)
    first = device.run(session, inputs(2, 5), OUTPUTS)
    kept = [array.copy() for array in first]
    device.run(session, inputs(2, 5, seed=1), OUTPUTS)
    for array, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_concurrent_runs_get_their_own_results(session):
    device, host = DeviceMemory("cpu", 0), HostMemory()
    queries = [inputs(3, 6, seed) for seed in range(24)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda query: device.run(session, query, OUTPUTS), queries))
    for query, ours in zip(queries, found, strict=True):
        np.testing.assert_array_equal(ours[0], host.run(session, query, OUTPUTS)[0])


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3), np.array(7), np.zeros((0, 4), np.float32)])
def test_a_copy_has_content_type_and_shape(array):
    copy = PinnedBuffers(0).copy("tokens", array)
    np.testing.assert_array_equal(copy, array)
    assert (copy.dtype, copy.shape) == (array.dtype, array.shape)


def test_buffers_are_used_again_and_grow():
    buffers = PinnedBuffers(0)
    first = buffers.copy("tokens", np.arange(100))
    assert np.shares_memory(buffers.copy("tokens", np.arange(120)), first)
    assert not np.shares_memory(buffers.copy("lengths", np.arange(100)), first)
    assert not np.shares_memory(buffers.copy("tokens", np.arange(1000)), first)


def test_threads_have_their_own_buffers():
    buffers, copies = PinnedBuffers(0), []
    for _ in range(2):
        thread = threading.Thread(target=lambda: copies.append(buffers.copy("tokens", np.arange(8))))
        thread.start()
        thread.join()
    assert not np.shares_memory(*copies)


@pytest.mark.parametrize(("number", "known"), [(0, "of the first"), (1, "of the second"), (2, None)])
def test_page_locked_memory_is_that_of_the_gpu(monkeypatch, number, known):
    def device(name, description):
        return SimpleNamespace(ep_name=name, memory_info=lambda kind: (kind, description))

    kind = onnxruntime.OrtDeviceMemoryType.HOST_ACCESSIBLE
    devices = [device("CPUExecutionProvider", "of none")]
    devices += [device("CUDAExecutionProvider", description) for description in ("of the first", "of the second")]
    monkeypatch.setattr(memory.onnxruntime, "get_ep_devices", lambda: devices)
    assert memory._page_locked_memory(number) == (known and (kind, known))
