"""Repeated runs of a graph on arrays that stay on their device."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np
import onnxruntime

from models.backend import Array
from models.backend.memory import Memory, interruptible_run

__all__ = ["OnnxResident"]


class OnnxResident:
    """Arrays bound to sessions of a graph, the state as input and output at once.

    Each run takes the session that it is given; all have the same arrays. Buffers are kept from run to run and bound
    again only where shapes change, since binding costs as much as a small graph.
    """

    def __init__(
        self,
        session: Callable[[], AbstractContextManager[onnxruntime.InferenceSession]],
        memory: Memory,
        state: Mapping[str, Array],
        constants: Mapping[str, Array],
    ) -> None:
        self._session = session
        self._arrays = {name: np.ascontiguousarray(array) for name, array in state.items()}
        self._memory = memory
        self._state = {name: memory.place(array) for name, array in self._arrays.items()}
        self._given = constants
        self._constants = {name: np.ascontiguousarray(array) for name, array in constants.items()}
        self._bound = {name: memory.place(array) for name, array in self._constants.items()}
        self._bindings: dict[onnxruntime.InferenceSession, _Binding] = {}

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        with self._session() as session:
            if session not in self._bindings:
                self._bindings[session] = _Binding(session, self._memory, self._state, self._bound)
            return self._bindings[session].run(inputs, outputs)

    def reload(self) -> None:
        for name, array in self._constants.items():
            if array is not self._given[name]:
                np.copyto(array, self._given[name])
            if not self._memory.shared:
                self._bound[name].update_inplace(array)

    def state(self) -> Mapping[str, Array]:
        if self._memory.shared:
            return self._arrays
        return {name: value.numpy() for name, value in self._state.items()}


class _Binding:
    """The arrays of a resident computation, bound to one session."""

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        memory: Memory,
        state: Mapping[str, onnxruntime.OrtValue],
        constants: Mapping[str, onnxruntime.OrtValue],
    ) -> None:
        self._session, self._memory, self._state = session, memory, state
        self._binding = session.io_binding()
        for values in (state, constants):
            for name, value in values.items():
                self._binding.bind_ortvalue_input(name, value)
        self._inputs: dict[str, Array] = {}
        self._outputs: list[Array] = []
        self._key: object = None

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        for name, array in inputs.items():
            kept = self._inputs.get(name)
            if self._memory.shared and kept is not None and kept.shape == array.shape:
                np.copyto(kept, array)
                continue
            self._inputs[name] = np.array(array)
            self._memory.bind(self._binding, name, self._inputs[name])
        # Shapes of outputs follow from those of inputs and the values of scalars.
        key = [(array.shape, array.item() if not array.ndim else None) for array in inputs.values()]
        if key == self._key:
            self._compute()
            return [buffer.copy() for buffer in self._outputs]
        self._binding.clear_binding_outputs()
        for name in outputs:
            self._binding.bind_output(name)
        self._bind_state()
        self._compute()
        self._outputs = [np.array(value.numpy()) for value in self._binding.get_outputs()[: len(outputs)]]
        self._binding.clear_binding_outputs()
        for name, buffer in zip(outputs, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(buffer))
        self._bind_state()
        self._key = key
        return [buffer.copy() for buffer in self._outputs]

    def _compute(self) -> None:
        with interruptible_run() as options:
            self._session.run_with_iobinding(self._binding, options)

    def _bind_state(self) -> None:
        for name, value in self._state.items():
            self._binding.bind_ortvalue_output(f"new_{name}", value)
