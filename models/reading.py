"""Reading bundle directories: the manifest, and whether the files are those that it lists."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ConfigDict, ValidationError

from models.bundle.contract import TaskConfig
from models.bundle.manifest import FORMAT_VERSION, MANIFEST, BundleManifest, Manifest, upgraded
from models.errors import BundleError
from models.registry import UnknownNameError
from models.tasks.registry import TASKS

__all__ = ["load_manifest", "parse_manifest", "read_manifest", "sha256_of", "validate"]


class _UncheckedConfig(TaskConfig):
    """The section of a task that is not known, which no error is about."""

    model_config = ConfigDict(extra="allow")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def validate(bundle: Path) -> list[str]:
    """Return everything that is wrong with a bundle directory; an empty list where nothing is."""
    try:
        return list(_file_problems(bundle, read_manifest(bundle)))
    except BundleError as error:
        return list(error.problems)


def load_manifest(bundle: Path) -> Manifest:
    """Read the manifest and check all files; raises a `BundleError` that names everything that is wrong."""
    manifest = read_manifest(bundle)
    problems = tuple(_file_problems(bundle, manifest))
    if problems:
        raise BundleError(str(bundle), problems)
    return manifest


def read_manifest(bundle: Path) -> Manifest:
    """Read the manifest alone, the files unchecked; raises `BundleError`."""
    where = str(bundle)
    try:
        content = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(where, [f"{MANIFEST} is missing"]) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(where, [f"{MANIFEST} is not readable JSON: {error}"]) from error
    try:
        return parse_manifest(content)
    except ValidationError as error:
        raise BundleError(where, [f"{_location(each['loc'])}: {each['msg']}" for each in error.errors()]) from error
    except (UnknownNameError, ValueError) as error:
        raise BundleError(where, [str(error)]) from error


def parse_manifest(content: object) -> Manifest:
    """Return the manifest of a mapping, of format 2 or 1, with the section that its task defines.

    Raises pydantic's `ValidationError`, which names every wrong field, `ValueError` for a newer format and
    `UnknownNameError` for a task that no installed package registers.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{MANIFEST}: Input should be an object")
    version = content.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ValueError(f"format_version {version} is newer than {FORMAT_VERSION}, the newest that this release reads")
    task = content.get("task")
    config = TASKS[task].config_type if isinstance(task, str) else _UncheckedConfig
    return BundleManifest[config].model_validate_json(json.dumps(upgraded(content)))  # type: ignore[valid-type]


def _location(location: tuple[str | int, ...]) -> str:
    return ".".join(map(str, location)) or MANIFEST


def _file_problems(bundle: Path, manifest: Manifest) -> Iterator[str]:
    if bundle.name != str(manifest.version):
        yield f"version {manifest.version} lies in a directory named {bundle.name!r}"
    if bundle.parent.name != manifest.name:
        yield f"model {manifest.name!r} lies in a directory named {bundle.parent.name!r}"
    for name, expected in manifest.files.items():
        yield from _checksum_problems(bundle / name, expected)
    yield from _unlisted(bundle, manifest)


def _checksum_problems(path: Path, expected: str) -> Iterator[str]:
    try:
        if not path.is_file():
            yield f"{path.name} is missing"
        elif sha256_of(path) != expected:
            yield f"{path.name} does not match its checksum"
    except OSError as error:
        yield f"{path.name} cannot be read: {error.strerror}"


def _unlisted(bundle: Path, manifest: Manifest) -> Iterator[str]:
    """Yield the directory entries that have no checksum.

    A graph names files of weights that the manifest does not, so an unlisted file may change the answers. So
    may one in a sub-directory, which `files` cannot list. A symbolic link is listed and checked like the file that
    it leads to.
    """
    for path in sorted(bundle.iterdir()):
        if path.name != MANIFEST and path.name not in manifest.files:
            kind = "is a directory, which a bundle must not have" if path.is_dir() else "has no checksum in files"
            yield f"{path.name} {kind}"
