"""State that stays where a graph runs: both backends, against handing all arrays over again each time."""

import numpy as np
import pytest

from models.backend.interruption import Interrupted, Interruption
from models.backend.memory import DeviceMemory
from models.store import load_bundle


class CopyingMemory(DeviceMemory):
    """A device that copies as a GPU does: values and bound inputs share no memory with arrays."""

    def __init__(self):
        super().__init__("cpu", 0)

    def place(self, array):
        return super().place(array.copy())

    def bind(self, binding, name, array):
        super().bind(binding, name, array.copy())
        self._buffers._of_thread.__dict__.pop(name)  # the bound value keeps it


@pytest.fixture(params=["onnx", "onnx on a device", "torchscript"])
def translator(request, babblers, monkeypatch):
    translator = babblers[request.param.split()[0]]
    if request.param.endswith("device"):
        monkeypatch.setattr(translator.backend, "_memory", CopyingMemory())
    return translator


@pytest.fixture
def arrays(translator):
    """State, constants and the inputs of three steps, for two sentences and two hypotheses."""
    lengths = np.array([4, 2])
    names = [tensor.name for tensor in translator.manifest.graphs["encode"].outputs]
    source = np.array([[5, 6, 7, 1], [8, 1, 1, 1]])
    values = translator.backend.run("encode", {"source": source, "source_lengths": lengths}, names)
    state = {f"{part}_{layer}": np.zeros((2, 2, 8, 8), np.float32) for layer in range(2) for part in ("keys", "values")}
    steps = []
    for step in range(3):
        visible = np.zeros((2, 2, 8), bool)
        visible[:, :, : 2 * step + 2] = True
        steps.append(
            {
                "tokens": np.array([[step + 2, 9], [30, 40 + step]]),
                "positions": np.array([step, step]),
                "slots": np.full((2, 1), 2 * step) + np.arange(2),
                "visible": visible,
                "source_lengths": lengths,
                "k": np.array(5),
            }
        )
    return state, dict(zip(names, values, strict=True)), steps


OUTPUTS = ["candidates", "log_probabilities"]


def test_it_computes_what_runs_with_all_arrays_compute(translator, arrays):
    state, constants, steps = arrays
    resident = translator.backend.resident("step", {name: array.copy() for name, array in state.items()}, constants)
    moved = [f"new_{name}" for name in state]
    for inputs in steps:
        candidates, values, *new = translator.backend.run("step", {**inputs, **state, **constants}, [*OUTPUTS, *moved])
        ours = resident.run(inputs, OUTPUTS)
        assert len(ours) == 2
        np.testing.assert_array_equal(ours[0], candidates)
        np.testing.assert_allclose(ours[1], values, atol=1e-5)
        state = dict(zip(state, new, strict=True))
    assert resident.state().keys() == state.keys()
    for name, array in resident.state().items():
        np.testing.assert_allclose(array, state[name], atol=1e-5)
        assert array[:, :, :6].any()
        assert not array[:, :, 6:].any()


def test_results_outlive_the_next_run(translator, arrays):
    state, constants, steps = arrays
    resident = translator.backend.resident("step", state, constants)
    first = resident.run(steps[0], OUTPUTS)
    kept = [array.copy() for array in first]
    resident.run(steps[1], OUTPUTS)
    for array, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_inputs_and_constants_stay_as_they_are(translator, arrays):
    state, constants, steps = arrays
    before = {name: array.copy() for name, array in (steps[0] | constants).items()}
    translator.backend.resident("step", state, constants).run(steps[0], OUTPUTS)
    for name, array in (steps[0] | constants).items():
        np.testing.assert_array_equal(array, before[name])


def test_arrays_need_not_be_contiguous(translator, arrays):
    """Views of larger arrays, which dropping sentences leaves behind."""
    state, constants, steps = arrays
    expected = translator.backend.resident("step", {n: a.copy() for n, a in state.items()}, constants).run(
        steps[0], OUTPUTS
    )
    views = {name: np.concatenate([array, array], axis=-1)[..., : array.shape[-1]] for name, array in constants.items()}
    for ours, theirs in zip(
        translator.backend.resident("step", state, views).run(steps[0], OUTPUTS), expected, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_constants_written_in_place_count_from_the_next_run_on(translator, arrays):
    state, constants, steps = arrays

    def fresh():
        return {name: array.copy() for name, array in state.items()}

    other = {name: array[::-1].copy() for name, array in constants.items()}
    expected = translator.backend.resident("step", fresh(), other).run(steps[0], OUTPUTS)
    resident = translator.backend.resident("step", fresh(), constants)
    before = resident.run(steps[0], OUTPUTS)
    for name, array in constants.items():
        array[:] = other[name]
    resident.reload()
    after = resident.run(steps[0], OUTPUTS)
    np.testing.assert_array_equal(after[0], expected[0])
    np.testing.assert_allclose(after[1], expected[1], atol=1e-5)
    assert not np.array_equal(before[1], after[1])


def test_runs_beside_others_take_another_session_with_the_same_state(babbler_bundle, arrays):
    state, constants, steps = arrays
    backend = load_bundle(babbler_bundle, threads=2, parallel=2).backend

    def resident():
        return backend.resident("step", {name: array.copy() for name, array in state.items()}, constants)

    alone = resident()
    expected = [alone.run(inputs, OUTPUTS) for inputs in steps]
    assert list(alone._bindings) == [backend._sessions["step"]]
    one, other = resident(), resident()
    del alone
    for number, (inputs, (candidates, values)) in enumerate(zip(steps, expected, strict=True)):
        if number == 2:
            del other
        ours = one.run(inputs, OUTPUTS)
        np.testing.assert_array_equal(ours[0], candidates)
        np.testing.assert_allclose(ours[1], values, atol=1e-5)
    assert list(one._bindings) == [backend._concurrent_sessions["step"], backend._sessions["step"]]


def test_it_is_interrupted_between_two_steps_on_both_backends_and_in_memory_of_any_kind(translator, arrays):
    state, constants, steps = arrays
    resident = translator.backend.resident("step", {name: array.copy() for name, array in state.items()}, constants)
    interruption = Interruption()
    with interruption:
        resident.run(steps[0], OUTPUTS)
        interruption.interrupt()
        with pytest.raises(Interrupted):
            resident.run(steps[1], OUTPUTS)
        with pytest.raises(Interrupted):
            translator.backend.run("step", {**steps[1], **state, **constants}, OUTPUTS)
    assert len(resident.run(steps[1], OUTPUTS)) == 2
