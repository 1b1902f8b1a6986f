"""A backend that answers after a modelled time, and `softserve serve` with it.

    python -m benchmarks.modelled.backend FIXED_US ITEM_US TOKEN_US serve ...

Its thread sleeps, as one does that waits for an accelerator, so that the processors are left to the service.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import numpy as np

from models import store
from models.backend import Array, Backend, BackendName
from models.bundle.manifest import Manifest
from service import cli
from service.engine.cost_model import Terms

__all__ = ["ModelledBackend"]


class ModelledBackend:
    """Computes nothing: the k best classes of each text are the first ones, with probabilities that halve.

    Their normalizers are 0.
    """

    def __init__(self, terms: Terms) -> None:
        self.name: BackendName = "onnx"
        self.device, self.parallel = "cpu", 1
        self._terms = terms

    def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Answer after the time of a batch; `graph` is that of a classifier of texts."""
        items, longest = inputs["tokens"].shape
        time.sleep(self._terms.seconds(items, longest))
        shape = items, int(inputs["k"])
        values: dict[str, Array] = {
            "log_probabilities": np.broadcast_to(
                -np.float32(np.log(2)) * np.arange(1, shape[1] + 1, dtype=np.float32), shape
            ),
            "classes": np.broadcast_to(np.arange(shape[1]), shape),
            "normalizers": np.zeros(items, np.float32),
        }
        return [values[name] for name in outputs]

    def concurrently(self) -> AbstractContextManager[None]:
        return nullcontext()

    def resident(self, graph: str, state: Mapping[str, Array], constants: Mapping[str, Array]) -> NoReturn:
        raise NotImplementedError("this backend classifies texts; nothing is decoded with it")


def main() -> None:
    """Run a command of `softserve` in which every model has the backend."""
    fixed, item, token = (float(text) / 1e6 for text in sys.argv[1:4])

    def backend(name: str, path: Path, manifest: Manifest, **options: Any) -> Backend:
        return ModelledBackend(Terms(fixed, item, token))

    sys.argv[1:4] = []
    with mock.patch.object(store, "_backend", backend):
        cli.main()


if __name__ == "__main__":
    main()
