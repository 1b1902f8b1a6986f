"""The page of `manifest.json`, from `models.bundle.manifest` and the section of each task."""

from docs.generators.markdown import page, paragraphs
from docs.generators.sections import Sections
from models.bundle.contract import TaskConfig
from models.bundle.manifest import BundleManifest
from models.tasks.registry import TASKS

__all__ = ["manifest_page"]

_INTRODUCTION = """
Every bundle, a directory `<name>/<version>/`, has a file `manifest.json` of format 2. Unknown fields, files that it
does not list and wrong checksums are errors. `softserve inspect DIRECTORY` checks a bundle and prints its contents;
`softserve-train export` and `softserve-train import` write it. Bundles of format 1 are converted when they are read.
"""


def manifest_page() -> str:
    """Return the page: the fields of all manifests, then those of the section `config` of each task."""
    common = Sections(BundleManifest[TaskConfig])
    config = frozenset({"config"})
    parts = [_INTRODUCTION, "## All tasks", common.fields(), *common.parts("###", config)]
    for task in _tasks():
        model = TASKS[task].config_type
        sections = Sections(model)
        parts += [f"## `config` of {task}", paragraphs(model.__doc__), sections.fields(), *sections.parts("###")]
    return page("Manifest", "models/bundle/manifest.py and models/tasks", parts)


def _tasks() -> list[str]:
    return sorted(name for name in TASKS.names() if TASKS[name].__module__.startswith("models."))
