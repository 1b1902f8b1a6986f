"""The old names of modules, which other packages may import until version 0.2."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["MOVED", "MovedModules"]

MOVED = {
    "training.export.bundle": "training.run.export",
    "training.export.placing": "training.bundling.bundle",
    "training.export": "training.bundling",
    "training.analysis.cli": "training.cli.analyses",
    "training.analysis": "training.search.analyses",
    "training.results.command": "training.cli.tables",
    "training.results.tables": "training.search.tables.definitions",
    "training.results": "training.search.tables",
    "training.bundling.operators": "training.networks.operators",
    "training.importing.command": "training.cli.importing",
    "training.checkpoint": "training.run.checkpoint",
    "training.commands": "training.cli.commands",
    "training.continuing": "training.run.resumption",
    "training.distributed": "training.run.distributed",
    "training.dotted_path": "training.recipe.dotted_path",
    "training.interruption": "training.run.interruption",
    "training.locking": "training.run.locking",
    "training.loop": "training.run.loop",
    "training.optimization": "training.run.optimization",
    "training.overrides": "training.recipe.overrides",
    "training.progress": "training.run.progress",
    "training.run_directory": "training.run.directory",
    "training.running": "training.run.session",
    "training.snapshots": "training.run.snapshots",
    "training.softmax.settings": "training.recipe.output_layer",
    "training.trained": "training.run.session",
    "training.tune": "training.search.tune",
}
"""The new name of each module, or package with all its modules; the first that fits counts."""


class MovedModules(MetaPathFinder, Loader):
    """Finds modules by their old names, with a `DeprecationWarning`; they are the same objects as by the new ones."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return None if _new_name(name) is None else ModuleSpec(name, self)

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = _new_name(old)
        assert new is not None
        warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = importlib.import_module(new)


def _new_name(name: str) -> str | None:
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return None
