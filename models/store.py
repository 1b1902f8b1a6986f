"""Find and load bundles."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from models.backend import Backend, BackendName
from models.bundle.manifest import MANIFEST, Manifest
from models.errors import BundleError, UnknownModelError, UnsupportedDeviceError
from models.private_copy import verified
from models.reading import VerifiedBundle, read_manifest
from models.signing import TrustedKey
from models.tasks.registry import TASKS

__all__ = ["BUNDLED", "NO_MANIFEST", "ModelStore", "bundle_errors", "load_bundle", "load_verified"]

BUNDLED = Path(__file__).parent / "bundled"
"""The models that ship with the project."""


NO_MANIFEST = f"it has no {MANIFEST}"
"""The problem of a directory of a version that holds no bundle, or not yet."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Names that models may have: other entries, such as `lost+found`, need not be readable."""


LoadedModel = Any
"""A model of the class that its task registers, which no type checker knows."""


class BackendOptions(TypedDict, total=False):
    """Options that say where and how graphs are computed."""

    device: str
    threads: int | None
    parallel: int
    allow_cpu_fallback: bool
    graphs: Literal["cpu", "cuda"] | None
    work_bytes: int | None


class LoadOptions(BackendOptions, total=False):
    """The options of `load_bundle`."""

    backend: BackendName
    map_weights: bool
    trusted_key: TrustedKey | None


class ModelStore:
    """The bundles `<directory>/<name>/<version>/` of one or several directories; the first directory wins."""

    def __init__(self, *directories: str | Path) -> None:
        """Raises `FileNotFoundError` for a directory that is not there."""
        self._directories = [Path(directory) for directory in directories]
        for directory in self._directories:
            if not directory.is_dir():
                raise FileNotFoundError(f"model directory {directory} does not exist")

    def versions(self) -> dict[str, list[int]]:
        """Return names and their versions in ascending order, as they are on disk now."""
        found: dict[str, list[int]] = {}
        for name, version in sorted(self._bundles()):
            found.setdefault(name, []).append(version)
        return found

    def paths(self) -> list[Path]:
        """Return the directories of all bundles, as they are on disk now."""
        return list(self._bundles().values())

    def manifest(self, name: str, version: int | None = None) -> Manifest:
        """Return the manifest of a model, its files unchecked."""
        return read_manifest(self.path(name, version))

    def offers(self, name: str) -> tuple[str, ...]:
        """Return the operations that a model offers, such as `classify`."""
        manifest = self.manifest(name)
        task = TASKS[manifest.task]
        return tuple(each.name for each in task.operations_of(manifest)) or task.offers

    def path(self, name: str, version: int | None = None) -> Path:
        """Return the directory of a bundle: `"name"` is the newest version, `"name:1"` version 1.

        Raises `UnknownModelError`. Names are only ever compared with those on disk, never joined to a path.
        """
        plain, _, suffix = name.partition(":")
        bundles = self._bundles()
        versions = [number for known, number in bundles if known == plain]
        wanted = version if version is not None else _version_number(suffix) if suffix else max(versions, default=-1)
        if (plain, wanted) not in bundles:
            known = [f"{known}:{number}" for known, number in sorted(bundles)]
            raise UnknownModelError(name if version is None else f"{plain}:{version}", known)
        return bundles[plain, wanted]

    def load(self, name: str, version: int | None = None, **options: Unpack[LoadOptions]) -> LoadedModel:
        """Load a model after checking all its files; the options are those of `load_bundle`."""
        return load_bundle(self.path(name, version), **options)

    def problems(self) -> dict[Path, str]:
        """Return the faults of entries of the directories that hold no bundle although they look as if they did.

        They are as on disk now: a directory that cannot be read, a version that is no directory or has no manifest.
        Models may be missing for them, or older versions be taken.
        """
        return self._scan()[1]

    def _bundles(self) -> dict[tuple[str, int], Path]:
        return self._scan()[0]

    def _scan(self) -> tuple[dict[tuple[str, int], Path], dict[Path, str]]:
        """Return the bundles that there are, and the problems of other entries."""
        found: dict[tuple[str, int], Path] = {}
        problems: dict[Path, str] = {}
        for directory in self._directories:
            if not os.path.exists(directory):  # raises nothing where a parent may not be read
                problems[directory] = "it does not exist"
            for name in _entries(directory, problems):
                noted = problems if _NAME.fullmatch(name) else {}
                for entry in _entries(directory / name, noted):
                    path, version = directory / name / entry, _version_number(entry)
                    if version > 0 and _has_manifest(path, noted):
                        found.setdefault((name, version), path)
        return found, problems


def _entries(directory: Path, problems: dict[Path, str]) -> list[str]:
    """Return the names in a directory; none, and a problem, where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except NotADirectoryError:
        if not directory.suffix:  # others, such as readme.txt, stand for no model
            problems[directory] = "it is no directory"
    except OSError as error:
        _note(directory, error, problems)
    return []


def _has_manifest(bundle: Path, problems: dict[Path, str]) -> bool:
    try:
        os.stat(bundle / MANIFEST)
    except NotADirectoryError:
        problems[bundle] = "it is no directory"
    except OSError as error:
        _note(bundle, error, problems)
    else:
        return True
    return False


def _note(path: Path, error: OSError, problems: dict[Path, str]) -> None:
    """Add the problem of an entry, unless it has just been deleted."""
    if not isinstance(error, FileNotFoundError):
        problems[path] = f"it cannot be read: {error.strerror}"
    elif path.is_dir():
        problems[path] = NO_MANIFEST
    elif path.is_symlink():
        problems[path] = "it is a link to nothing"


def load_bundle(
    path: Path | str,
    *,
    backend: BackendName = "onnx",
    map_weights: bool = False,
    trusted_key: TrustedKey | None = None,
    **options: Unpack[BackendOptions],
) -> LoadedModel:
    """Load the bundle in a directory; return a model of the class that its task registers.

    Its files are checked, copied to a temporary directory and loaded from there, so that a file that changes later
    changes nothing. `map_weights` maps those of the bundle itself. With a `trusted_key`, the bundle must be
    signed by it.

    `parallel` is how many batches or decodings will be computed concurrently. `allow_cpu_fallback` accepts that a GPU
    has no kernel for some operators of an ONNX graph, which the CPU then computes. `graphs` chooses the ONNX graphs for
    a kind of device other than that of `device`. `work_bytes` limits the memory that each ONNX graph takes on a GPU in
    addition to its weights.

    Raises `BundleError` naming everything that is wrong with it, `UnsupportedDeviceError` for a backend or device that
    is not available here.
    """
    path = Path(path)
    checked = verified(path, backend=backend, map_weights=map_weights, trusted_key=trusted_key)
    with bundle_errors(path, "it does not load"), checked as bundle:
        return load_verified(bundle, backend=backend, **options)


def load_verified(
    bundle: VerifiedBundle, *, backend: BackendName = "onnx", **options: Unpack[BackendOptions]
) -> LoadedModel:
    """Load a bundle whose files have been checked, as `load_bundle` does."""
    path, manifest = bundle.path, bundle.manifest
    try:
        with bundle_errors(path, "it does not load"):
            model_type = TASKS[manifest.task]
            return model_type.from_bundle(path, manifest, _backend(backend, path, manifest, **options))
    except BundleError as error:  # which names the copy
        problems = [problem.replace(str(path), str(bundle.origin)) for problem in error.problems]
        raise BundleError(str(bundle.origin), problems) from error


@contextlib.contextmanager
def bundle_errors(bundle: Path, failure: str) -> Iterator[None]:
    """Turn any exception raised inside into a `BundleError`, except those that already name the cause.

    Libraries document no complete list of exceptions for invalid files. A panic of one that is written in
    Rust, such as tokenizers, is no `Exception`: it would pass by every handler, and end a task that runs forever.
    """
    try:
        yield
    except (BundleError, UnknownModelError, UnsupportedDeviceError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise BundleError(str(bundle), [f"{failure}: {type(error).__name__}: {error}"]) from error


def _backend(name: BackendName, path: Path, manifest: Manifest, **options: Unpack[BackendOptions]) -> Backend:
    if name == "onnx":
        from models.backend.onnx import OnnxBackend

        return OnnxBackend(path, manifest, **options)
    if name != "torchscript":
        raise UnsupportedDeviceError(f"unknown backend {name!r}; known backends: onnx, torchscript")
    try:
        from models.backend.torchscript import TorchScriptBackend
    except ModuleNotFoundError as error:
        raise UnsupportedDeviceError("the torchscript backend needs torch: install softserve[torchscript]") from error
    device, threads = options.get("device", "cpu"), options.get("threads")
    return TorchScriptBackend(path, manifest, device=device, threads=threads)


def _version_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
