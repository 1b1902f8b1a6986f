"""The entry points of `softserve` and `softserve-train`, which are installed as the module `softserve_start`.

`models`, `service` and `training` are names that packages of other projects have as well, and the first on Python's
path is imported. This module has a name of its own, so that it is found in any case, and checks the others.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

__all__ = ["serve", "train"]

_OWN_MODULES: Mapping[str, str] = {
    "models": "bundle/manifest.py",
    "service": "engine/served_models.py",
    "training": "softmax/mixture.py",
}
"""A module of each package, by which Softserve's are told from others."""


def serve() -> None:
    """Run `softserve`."""
    _run("softserve", "service")


def train() -> None:
    """Run `softserve-train`."""
    _run("softserve-train", "training")


def _run(command: str, package: str) -> None:
    """Call `main` of the package's module `cli`; end with status 1 where a package of another project comes first."""
    for name in ("models", package):
        if message := _hidden(name):
            sys.exit(f"{command}: {message}")
    import_module(f"{package}.cli").main()


def _hidden(name: str) -> str | None:
    """Return a message where another package of this name is found in place of Softserve's, which is there too."""
    found = find_spec(name)
    if found is None or any(map(_is_own, found.submodule_search_locations or ())):
        return None
    paths = (Path(entry).absolute() / name for entry in sys.path)
    own = next((path / "__init__.py" for path in paths if _is_own(path)), None)
    if own is None:
        return None
    other = found.origin or next(iter(found.submodule_search_locations or ()))
    return f"{other} hides the package {name} of Softserve, {own}: rename it, or start Python elsewhere"


def _is_own(package: Path | str) -> bool:
    path = Path(package)
    return (path / _OWN_MODULES[path.name]).is_file()
