"""`softserve models`: which models there are, their facts, and whether their files are complete and signed."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from models import ModelStore
from models.bundle.bill_of_materials import bill_of_materials
from models.errors import BundleError
from models.escaping import escaped
from models.reading import read_manifest, validate, verify
from models.signing import TrustedKey
from models.store import BUNDLED
from service.offline.options import ModelDirs, UsageError

__all__ = ["models", "print_bundle"]


def models(
    action: Annotated[Literal["list", "show", "verify", "bom"], tyro.conf.Positional] = "list",
    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME[:VERSION]...]")] = (),
    model_dirs: ModelDirs = (),
    public_key: Path | None = None,
) -> int:
    """List the models in directories, show one, verify its files and its signature, or print its bill of materials.

    Entries of the directories that cannot be read or hold no bundle are named on standard error. Exit status 1 where a
    bundle is damaged, and for verify without names where there is such an entry.

    Args:
        action: list prints a line for each; show all of a bundle's facts; verify reads every file; bom prints the bill
            of materials of one, in CycloneDX 1.6.
        names: Models to show or verify, by default all: names, or directories of bundles, which have a slash.
        model_dirs: Directory of bundles instead of the bundled ones, repeated for several.
        public_key: For verify: PEM file of the public key, or of certificates, by which bundles must be signed.
    """
    if public_key is not None and action != "verify":
        raise UsageError("--public-key is for verify")
    store = ModelStore(*(model_dirs or (BUNDLED,)))
    skipped = {} if names else store.problems()
    for path, problem in skipped.items():
        print(f"skipped: {path}: {problem}", file=sys.stderr)
    if action == "list":
        if names:
            raise UsageError("list takes no names; show, verify and bom do")
        _print_list(store)
        return 0
    paths = [_path(store, name) for name in names] or sorted(store.paths())
    if action == "bom":
        return _print_bill(paths)
    if action == "show":
        return max((print_bundle(path) for path in paths), default=0)
    key = None if public_key is None else TrustedKey.read(public_key)
    return max([int(bool(skipped)), *(_verify(path, key) for path in paths)])


def _path(store: ModelStore, name: str) -> Path:
    """Return the directory of a bundle, which no name of a model can be where it has a slash."""
    return Path(name).resolve() if "/" in name else store.path(name)


def _print_bill(paths: Sequence[Path]) -> int:
    if len(paths) != 1:
        raise UsageError("bom prints one document: name one model")
    bundle = verify(paths[0])
    print(json.dumps(bill_of_materials(bundle.manifest, bundle.digest), indent=2))
    return 0


def _print_list(store: ModelStore) -> None:
    rows = [("model", "task", "commands", "description")]
    for path in sorted(store.paths()):
        manifest = read_manifest(path)
        offers = ", ".join(store.offers(f"{manifest.name}:{manifest.version}"))
        rows.append((f"{manifest.name}:{manifest.version}", manifest.task, offers, manifest.description))
    _print_columns(rows)


def _print_line(line: str) -> None:
    """Print a line; texts of a bundle must not control the terminal."""
    print(escaped(line))


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    shown = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        _print_line("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _verify(path: Path, key: TrustedKey | None) -> int:
    problems: Sequence[str] = ()
    try:
        verify(path, trusted_key=key)
    except BundleError as error:
        problems = error.problems
    good = "all checksums match" if key is None else "all checksums match; the signature is valid"
    _print_line(f"{path.parent.name}:{path.name}  {'; '.join(problems) or good}")
    return 1 if problems else 0


def print_bundle(path: Path) -> int:
    """Print the contents of a bundle, or its problems; return the exit status."""
    problems = validate(path)
    for problem in problems:
        _print_line(f"wrong: {problem}")
    if problems:
        return 1
    manifest = read_manifest(path)
    size = sum((path / name).stat().st_size for name in manifest.files)
    _print_line(f"{manifest.name}:{manifest.version}  {manifest.task}  {manifest.description}")
    if (softmax := manifest.softmax) is not None:
        distribution = softmax.distribution()
        kernels = ", ".join(softmax.titles)
        _print_line(f"output layer   {kernels}{'' if distribution is None else f'; {distribution}'}")
    for name, value in manifest.config.description().items():
        _print_line(f"{name:<14} {value}")
    _print_line(f"licence        {manifest.licence}")
    _print_line(f"files          {len(manifest.files)}, {size / 1e6:.1f} MB, all checksums match")
    for_devices = sorted({(kind, file) for graph in manifest.graphs.values() for kind, file in graph.devices.items()})
    for kind, file in for_devices:
        _print_line(f"graph for {kind} {file}")
    for quality in manifest.quality:
        digits = 4 if abs(quality.value) < 1 else 2
        _print_line(f"{quality.metric:<14} {quality.value:.{digits}f} on {quality.dataset}, {quality.split}")
    return 0
