"""Private copies of bundles, which models are loaded from.

Sessions of onnxruntime map the files of their weights. Where such a file is shortened, the process that reads it ends
by SIGBUS; where it is written over, its answers change. So the bytes that match the checksums are copied to a directory
that no other program writes to. Its files are deleted once the model is loaded, which mappings survive.
"""

import contextlib
import errno
import fcntl
import logging
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from models.backend import BackendName
from models.bundle.manifest import Manifest
from models.errors import BundleError
from models.files import NotWritten, writing
from models.reading import VerifiedBundle, read_manifest, verify
from models.signing import TrustedKey

__all__ = ["private_directory", "verified", "verified_copy"]

logger = logging.getLogger("softserve")

_PREFIX = "softserve-bundle-"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a file system that is full."""
_SETTLED = 5.0
"""Seconds after which a directory that no process has locked was left by one that was killed: a new one is locked at
once."""


@contextlib.contextmanager
def verified(
    bundle: Path,
    *,
    backend: BackendName = "onnx",
    map_weights: bool = False,
    trusted_key: TrustedKey | None = None,
) -> Iterator[VerifiedBundle]:
    """Provide a bundle whose files match their checksums; raises `BundleError`.

    With `map_weights`, it is that in its own directory, whose files must not change as long as the model is used. With
    a `trusted_key` the bundle must be signed; raises `ValueError` with both.
    """
    if map_weights and trusted_key is not None:
        raise ValueError("map_weights uses files that can change after their signature is checked")
    if map_weights:
        yield verify(bundle)
        return
    with private_directory() as directory:
        yield verified_copy(bundle, directory, backend=backend, trusted_key=trusted_key)


def verified_copy(
    bundle: Path,
    directory: Path | None,
    *,
    backend: BackendName = "onnx",
    max_bytes: float = math.inf,
    trusted_key: TrustedKey | None = None,
) -> VerifiedBundle:
    """Copy a bundle to a private directory, and check the copy; raises `BundleError`.

    Where the directory has no room, or less than `max_bytes` are allowed, or it cannot be written, the bundle in its
    own directory is returned, with a warning; with a `trusted_key`, by which it must be signed, that is an error: files
    that others can change would be loaded after their check.
    """
    place, reason = "the temporary directory", "has no room for a private copy"
    if directory is not None:
        place = str(directory.parent)
        manifest = read_manifest(bundle)
        skip = _unused(manifest, backend)
        try:
            if _size(bundle, manifest.files.keys() - skip) <= min(max_bytes, _free(directory)):
                return verify(bundle, directory, skip=skip, trusted_key=trusted_key)
        except NotWritten as error:
            if error.errno not in _NO_ROOM:
                reason = f"takes no private copy ({error.strerror})"
            for each in directory.iterdir():
                shutil.rmtree(each, ignore_errors=True)
    if trusted_key is not None:
        verify(bundle, trusted_key=trusted_key)
        raise BundleError(str(bundle), [f"signed bundles are loaded from a private copy, and {place} {reason}"])
    logger.warning(
        "%s: %s %s: its files are used where they are, and must not be changed in place", bundle, place, reason
    )
    return verify(bundle)


def _free(directory: Path) -> int:
    with writing():
        return shutil.disk_usage(directory).free


@contextlib.contextmanager
def private_directory() -> Iterator[Path | None]:
    """Provide a new directory that only this user can enter, and delete it afterwards; None where there is no place.

    It is below TMPDIR. Directories that killed processes have left there are deleted first.
    """
    with contextlib.ExitStack() as stack:
        try:
            directory = _locked_directory(stack)
        except OSError:
            stack.close()
            directory = None
        yield directory


def _locked_directory(stack: contextlib.ExitStack) -> Path:
    """Return a new directory, which the stack deletes; raises `OSError`, also where it cannot be locked."""
    parent = Path(tempfile.gettempdir())
    _delete_abandoned(parent)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return directory


def _delete_abandoned(parent: Path) -> None:
    """Delete directories whose processes have ended: the system has released their locks."""
    for directory in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _SETTLED:
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)


def _unused(manifest: Manifest, backend: BackendName) -> set[str]:
    """Return the files that a backend does not read, which may be as large as the weights."""
    return {graph.torchscript for graph in manifest.graphs.values() if graph.torchscript and backend == "onnx"}


def _size(bundle: Path, names: set[str]) -> int:
    """Return the bytes of files; those that cannot be read have none."""
    total = 0
    for name in names:
        with contextlib.suppress(OSError):
            total += (bundle / name).stat().st_size
    return total
