"""The bundled translator under other names and languages, to test what chooses models by their languages."""

import json
import shutil
from pathlib import Path
from typing import Any

from models.store import BUNDLED

__all__ = ["write_translator"]


def write_translator(directory: Path, source: str, target: str, **changes: Any) -> str:
    """Write the bundle `<directory>/<source>-<target>/1`, and return its name; `changes` are values of its section.

    It translates from German to English whatever its languages are, and most English words to themselves.
    """
    name = f"{source}-{target}"
    bundle = directory / name / "1"
    (original,) = (BUNDLED / "de-en").iterdir()
    shutil.copytree(original, bundle)
    path = bundle / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest |= {"name": name, "version": 1}
    section = manifest[manifest["task"]] if manifest["task"] in manifest else manifest["config"]
    section["languages"] |= {"source": source, "target": target}
    section |= changes
    path.write_text(json.dumps(manifest))
    return name
