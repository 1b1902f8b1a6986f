"""Reading bundle directories: the manifest, and whether the files are those that it lists."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ConfigDict, ValidationError

from models.bundle.contract import TaskConfig
from models.bundle.manifest import FORMAT_VERSION, MANIFEST, SIGNATURE, BundleManifest, Manifest, upgraded
from models.errors import BundleError
from models.files import NotAFile, NotWritten, TooLarge, read_regular, sha256_of_regular, writing
from models.registry import UnknownNameError
from models.signing import SignatureError, TrustedKey
from models.tasks.registry import TASKS

__all__ = [
    "MAX_GRAPH_BYTES",
    "MAX_MANIFEST_BYTES",
    "MAX_TEXT_BYTES",
    "VerifiedBundle",
    "load_manifest",
    "parse_manifest",
    "read_manifest",
    "sha256_of",
    "validate",
    "verify",
]

MAX_MANIFEST_BYTES = 8 << 20
"""Largest manifest; those of the bundled models have 12 KB at most."""
MAX_TEXT_BYTES = 128 << 20
"""Largest file that the section of a task names, such as a tokenizer or labels; large vocabularies have some 40 MB."""
MAX_GRAPH_BYTES = (2 << 30) - 1
"""Largest ONNX graph, which is a message of protocol buffers. Its weights are in other files, without such a limit."""


@dataclass(frozen=True, slots=True)
class VerifiedBundle:
    """A bundle whose files are those that its manifest lists."""

    origin: Path
    """Directory of the bundle, which errors name."""
    path: Path
    """Directory to read its files from: a copy of those that were checked, or that of the bundle."""
    manifest: Manifest
    digest: str
    """sha256 of the manifest, which holds the checksum of every other file."""


class _UncheckedConfig(TaskConfig):
    """The section of a task that is not known, which no error is about."""

    model_config = ConfigDict(extra="allow")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; raises `OSError`, also for anything but a regular file."""
    return sha256_of_regular(path)


def validate(bundle: Path) -> list[str]:
    """Return everything that is wrong with a bundle directory; an empty list where nothing is."""
    try:
        load_manifest(bundle)
    except BundleError as error:
        return list(error.problems)
    return []


def load_manifest(bundle: Path) -> Manifest:
    """Read the manifest and check all files; raises a `BundleError` that names everything that is wrong."""
    return verify(bundle).manifest


def verify(
    bundle: Path,
    directory: Path | None = None,
    *,
    skip: Collection[str] = (),
    trusted_key: TrustedKey | None = None,
) -> VerifiedBundle:
    """Check all files of a bundle; raises a `BundleError` that names everything that is wrong.

    With a `directory`, the bytes that are checked are also copied there, except files to `skip`: nothing that happens
    to the bundle later changes them. Raises `NotWritten` where that fails. With a `trusted_key`, the manifest and the
    checksums must be signed.
    """
    data = _manifest_bytes(bundle)
    manifest = _manifest_of(bundle, data)
    if trusted_key is not None:
        _check_signature(bundle, data, manifest, trusted_key)
    copy = None
    if directory is not None:
        copy = directory / manifest.name / str(manifest.version)
        with writing():
            copy.mkdir(parents=True)
            (copy / MANIFEST).write_bytes(data)
    copies = {} if copy is None else {name: copy / name for name in manifest.files if name not in skip}
    if problems := tuple(_file_problems(bundle, manifest, copies)):
        raise BundleError(str(bundle), problems)
    return VerifiedBundle(bundle, copy or bundle, manifest, hashlib.sha256(data).hexdigest())


def _check_signature(bundle: Path, data: bytes, manifest: Manifest, trusted_key: TrustedKey) -> None:
    try:
        trusted_key.check(bundle, data, manifest.files)
    except SignatureError as error:
        raise BundleError(str(bundle), [str(error)]) from error


def read_manifest(bundle: Path) -> Manifest:
    """Read the manifest alone, the files unchecked; raises `BundleError`."""
    return _manifest_of(bundle, _manifest_bytes(bundle))


def _manifest_bytes(bundle: Path) -> bytes:
    try:
        return read_regular(bundle / MANIFEST, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        problem = f"{MANIFEST} is missing"
    except OSError as error:
        problem = f"{MANIFEST} cannot be read: {error.strerror}"
    raise BundleError(str(bundle), [problem])


def _manifest_of(bundle: Path, data: bytes) -> Manifest:
    where = str(bundle)
    try:
        content = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
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


def _file_problems(bundle: Path, manifest: Manifest, copies: Mapping[str, Path]) -> Iterator[str]:
    if bundle.name != str(manifest.version):
        yield f"version {manifest.version} lies in a directory named {bundle.name!r}"
    if bundle.parent.name != manifest.name:
        yield f"model {manifest.name!r} lies in a directory named {bundle.parent.name!r}"
    limits = _limits(manifest)
    for name, expected in manifest.files.items():
        yield from _checksum_problems(bundle / name, expected, limits.get(name), copies.get(name))
    yield from _unlisted(bundle, manifest)


def _limits(manifest: Manifest) -> dict[str, int]:
    """Return the largest sizes of files, in bytes."""
    graphs = {file for graph in manifest.graphs.values() for file in (graph.onnx, *graph.devices.values()) if file}
    return dict.fromkeys(graphs, MAX_GRAPH_BYTES) | dict.fromkeys(manifest.config.files(), MAX_TEXT_BYTES)


def _checksum_problems(path: Path, expected: str, max_bytes: int | None, copy: Path | None) -> Iterator[str]:
    try:
        if sha256_of_regular(path, max_bytes, copy) != expected:
            yield f"{path.name} does not match its checksum"
    except FileNotFoundError:
        yield f"{path.name} is missing"
    except (NotAFile, TooLarge) as error:
        yield f"{path.name} cannot be used: {error.strerror}"
    except NotWritten:
        raise
    except OSError as error:
        yield f"{path.name} cannot be read: {error.strerror}"


def _unlisted(bundle: Path, manifest: Manifest) -> Iterator[str]:
    """Yield the directory entries that have no checksum.

    A graph names files of weights that the manifest does not, so an unlisted file may change the answers. So
    may one in a sub-directory, which `files` cannot list. A symbolic link is listed and checked like the file that
    it leads to. The signature, whose name no manifest lists, is not read by models.
    """
    for path in sorted(bundle.iterdir()):
        if path.name not in (MANIFEST, SIGNATURE) and path.name not in manifest.files:
            kind = "is a directory, which a bundle must not have" if path.is_dir() else "has no checksum in files"
            yield f"{path.name} {kind}"
