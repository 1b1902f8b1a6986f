"""The other name of `training.softmax`: `softserve_softmax`, that of the distribution of these modules alone."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["SoftmaxName"]

_OTHER, _OWN = "softserve_softmax", "training.softmax"


class SoftmaxName(MetaPathFinder, Loader):
    """Finds `softserve_softmax` as `training.softmax`, so that a class derived from either `Kernel` fits both.

    It has no effect where `softserve_softmax` was imported before, which it warns of: each class is there twice then.
    """

    def __init__(self) -> None:
        if _OTHER in sys.modules:
            warnings.warn(
                f"{_OTHER} was imported before training: kernels derived from its classes are unknown to {_OWN}; "
                "import training first",
                stacklevel=3,
            )

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if f"{name}.".startswith(f"{_OTHER}.") else None

    def exec_module(self, module: ModuleType) -> None:
        other = module.__name__
        sys.modules[other] = importlib.import_module(_OWN + other.removeprefix(_OTHER))
