"""Find and load bundles."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from models.backend import Backend, BackendName
from models.bundle.manifest import MANIFEST, Manifest
from models.errors import BundleError, UnknownModelError, UnsupportedDeviceError
from models.reading import load_manifest, read_manifest
from models.tasks.registry import TASKS

__all__ = ["BUNDLED", "ModelStore", "bundle_errors", "load_bundle"]

BUNDLED = Path(__file__).parent / "bundled"
"""The models that ship with the project."""


class LoadOptions(TypedDict, total=False):
    """The options of `load_bundle`."""

    backend: BackendName
    device: str
    threads: int | None
    parallel: int
    allow_cpu_fallback: bool


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
        return TASKS[self.manifest(name).task].offers

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

    def load(self, name: str, version: int | None = None, **options: Unpack[LoadOptions]) -> Any:
        """Load a model after checking all its files; the options are those of `load_bundle`."""
        return load_bundle(self.path(name, version), **options)

    def _bundles(self) -> dict[tuple[str, int], Path]:
        found: dict[tuple[str, int], Path] = {}
        for directory in self._directories:
            for manifest in directory.glob(f"*/*/{MANIFEST}"):
                version = _version_number(manifest.parent.name)
                if version > 0:
                    found.setdefault((manifest.parent.parent.name, version), manifest.parent)
        return found


def load_bundle(
    path: Path,
    *,
    backend: BackendName = "onnx",
    device: str = "cpu",
    threads: int | None = None,
    parallel: int = 1,
    allow_cpu_fallback: bool = False,
    graphs: Literal["cpu", "cuda"] | None = None,
) -> Any:
    """Load the bundle in a directory; return a model of the class that its task registers.

    `parallel` is how many batches or decodings will be computed concurrently. `allow_cpu_fallback` accepts that a GPU
    has no kernel for some operators of an ONNX graph, which the CPU then computes. `graphs` chooses the ONNX graphs for
    a kind of device other than that of `device`.

    Raises `BundleError` naming everything that is wrong with it, `UnsupportedDeviceError` for a backend or device that
    is not available here.
    """
    with bundle_errors(path, "it does not load"):
        manifest = load_manifest(path)
        model_type = TASKS[manifest.task]
        onnx_options = {"parallel": parallel, "allow_cpu_fallback": allow_cpu_fallback, "graphs": graphs}
        return model_type.from_bundle(
            path, manifest, _backend(backend, path, manifest, device=device, threads=threads, **onnx_options)
        )


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


def _backend(
    name: BackendName, path: Path, manifest: Manifest, *, device: str, threads: int | None, **onnx_options: Any
) -> Backend:
    if name == "onnx":
        from models.backend.onnx import OnnxBackend

        return OnnxBackend(path, manifest, device=device, threads=threads, **onnx_options)
    if name != "torchscript":
        raise UnsupportedDeviceError(f"unknown backend {name!r}; known backends: onnx, torchscript")
    try:
        from models.backend.torchscript import TorchScriptBackend
    except ModuleNotFoundError as error:
        raise UnsupportedDeviceError("the torchscript backend needs torch: install softserve[torchscript]") from error
    return TorchScriptBackend(path, manifest, device=device, threads=threads)


def _version_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
