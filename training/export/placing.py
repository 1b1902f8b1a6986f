"""Where a new bundle goes: nothing but a bundle is ever replaced, and that whole or not at all."""

from pathlib import Path

from models.bundle.manifest import MANIFEST

__all__ = ["check_target", "place"]


def check_target(target: Path, *, force: bool, advice: str) -> None:
    """Raise `FileExistsError`, with advice, where the target is there, unless it is a bundle and `force` is set."""
    if not target.exists():
        return
    if not (target / MANIFEST).is_file():
        raise FileExistsError(f"{target} exists and is no bundle: {MANIFEST} is missing")
    if not force:
        raise FileExistsError(f"{target} exists; {advice}")


def place(directory: Path, target: Path) -> None:
    """Move a finished bundle to its place, and an older one next to where the new one was; both on one file system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    old = directory.with_name(f"{directory.name}.old")
    try:
        if target.exists():
            target.rename(old)
        directory.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise
