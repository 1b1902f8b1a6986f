"""A task whose model copies texts in place of translating them, to measure what documents cost apart from a model.

`install` writes a bundle of it, and a distribution that registers the task in every process that finds it on its path.
Each computed text is a line in the file that the environment variable `COPIED_TEXTS` names.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from models.backend import Backend
from models.bundle.contract import TaskConfig
from models.bundle.manifest import BundleManifest
from models.store import BUNDLED
from models.tasks.model import BatchFunction, Model, Part, SinglePart
from models.tasks.translation import TRANSLATE, Languages, Translated, Translation

__all__ = ["CopyingConfig", "CopyingModel", "install"]

_ENTRY_POINTS = "[softserve.models.tasks]\ncopying = benchmarks.copying_model:CopyingModel\n"


class CopyingConfig(TaskConfig):
    """The section of the manifest."""

    languages: Languages
    """Those of the texts, which are the same."""


@dataclass(frozen=True, slots=True)
class _Query(SinglePart):
    text: str

    @property
    def result_items(self) -> int:
        return 1

    @property
    def length(self) -> int:
        return 1 + len(self.text) // 4


class CopyingModel(Model[CopyingConfig]):
    """A loaded bundle."""

    config_type = CopyingConfig
    operations = (TRANSLATE,)

    @classmethod
    def from_bundle(cls, path: Path, manifest: BundleManifest[Any], backend: Backend) -> Self:
        return cls(manifest, backend)

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"translate": self.copies}

    def warm_up_parts(self, operation: str, count: int, length: int) -> Sequence[Part]:
        return [_Query("word " * length)] * count

    def query(self, text: str, *_: object, **__: object) -> _Query:
        """Return a query, whatever its options."""
        return _Query(text)

    def copies(self, parts: Sequence[_Query]) -> Sequence[str]:
        """Return the texts, and write the beginning of each to the file."""
        if path := os.environ.get("COPIED_TEXTS"):
            with Path(path).open("a") as file:
                file.write("".join(f"{part.text[:20]}\n" for part in parts))
        return [part.text for part in parts]

    def result(self, query: _Query, outputs: Sequence[Any]) -> Translation:
        return Translation(query.text, (Translated(outputs[0], 0.0),), low_confidence=False)


def install(directory: Path) -> dict[str, str]:
    """Write `models/copying/1` and a distribution to a directory; return the variables of processes that use them."""
    bundle = directory / "models" / "copying" / "1"
    shutil.copytree(BUNDLED / "intents" / "2", bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest |= {"task": "copying", "name": "copying", "version": 1}
    manifest["config"] = {"languages": {"source": "de", "target": "en", "targets": {}}}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    information = directory / "site" / "softserve_copying-0.1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: softserve-copying\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text(_ENTRY_POINTS)
    root = Path(__file__).parents[1]
    path = os.pathsep.join([str(directory / "site"), str(root), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "COPIED_TEXTS": str(directory / "copied.txt")}
