"""Train models: recipes, tasks, output layers, bundles. `training.softmax`, the output layers, needs torch alone."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from training.moved import MovedModules
from training.softmax_name import SoftmaxName

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reports its use otherwise, from its import on

_INDEPENDENT = ("softmax", "device", "settings", "moved", "softmax_name", "run.interruption")
"""Modules, and packages with their modules, that do not need `models`."""
_ENTRANCES = ("run", "cli", "cli.__main__")
"""Modules that do not need it either, in packages whose other modules do."""


class _HiddenModels:
    """A finder that refuses the modules of this package that need `models` where another package hides it."""

    def __init__(self, message: str) -> None:
        self._message = message

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        package, _, rest = name.partition(".")
        independent = rest in _ENTRANCES or any(f"{rest}.".startswith(f"{each}.") for each in _INDEPENDENT)
        if package == "training" and not independent:
            raise ImportError(self._message)


def _check_models() -> None:
    own = Path(__file__).resolve().parents[1] / "models" / "__init__.py"
    found = find_spec("models")
    if found is None or found.origin is None or Path(found.origin).resolve() == own:
        return
    sys.meta_path.insert(
        0,
        _HiddenModels(
            f"{found.origin} hides the package models of Softserve, {own}: rename it, or start Python elsewhere"
        ),
    )


sys.meta_path[:0] = [MovedModules(), SoftmaxName()]
_check_models()
