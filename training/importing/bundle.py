"""From a model directory to a bundle: graphs, tokenizer, manifest, model card, all verified."""

import datetime
import importlib.metadata
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from models.bundle.manifest import FORMAT_VERSION, MANIFEST, BundleName, Manifest
from models.reading import parse_manifest, sha256_of
from models.store import load_bundle
from training.export.device_graphs import cuda_file, with_cuda_graphs
from training.export.onnx import WEIGHTS, save_graphs
from training.export.placing import check_target, place
from training.export.verify import TOLERANCE, check_device_graphs
from training.importing.card import import_card
from training.importing.errors import ImportRefused
from training.importing.importer import ONNX, Agreement, ImportedGraph, Importer
from training.importing.samples import Samples
from training.importing.source import SourceDirectory
from training.run_directory import git_revision
from training.settings import PositiveInt, Settings

__all__ = ["BundleSettings", "Imported", "write_bundle"]

_CARD = "MODEL_CARD.md"

Report = Callable[[str], object]


class BundleSettings(Settings):
    """Name and description of a bundle."""

    name: BundleName
    version: PositiveInt
    description: str
    licence: str
    int8: bool = False
    """Whether the graphs are quantized."""
    force: bool = False
    """Whether a bundle of the same version is replaced."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A finished import."""

    path: Path
    manifest: Manifest
    difference: float
    """Largest difference of a log-probability from the reference, in float32."""
    agreement: Agreement | None
    """Agreement of int8 with float32, where the bundle is int8."""


@dataclass(kw_only=True)
class _Import:
    """The state that the steps of one import share."""

    importer: Importer
    source: SourceDirectory
    settings: BundleSettings
    samples: Samples
    directory: Path
    graphs: Mapping[str, ImportedGraph]
    largest_difference: float = 0.0
    agreement: Agreement | None = None

    def save_graphs(self, models: Mapping[str, onnx.ModelProto]) -> None:
        (self.directory / WEIGHTS).unlink(missing_ok=True)  # loaded graphs may have it mapped
        save_graphs(with_cuda_graphs(models), self.directory)

    def write_manifest(self) -> Manifest:
        """Write the manifest of the files as they are now."""
        manifest = self.manifest()
        (self.directory / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return manifest

    def manifest(self) -> Manifest:
        settings, source = self.settings, self.source
        files = sorted(file for file in self.directory.iterdir() if file.name != MANIFEST)
        content = {
            "format_version": FORMAT_VERSION,
            "task": self.importer.task,
            "name": settings.name,
            "version": settings.version,
            "description": settings.description,
            "licence": settings.licence,
            "softmax": self.importer.softmax(),
            "graphs": {name: self._contract(name, graph) for name, graph in self.graphs.items()},
            "config": self.importer.section(),
            "quality": self._quality(),
            "provenance": {
                "recipe": {},
                "git_revision": git_revision(),
                "data": [],
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "training_seconds": 0,
                "source": {
                    "name": source.name,
                    "revision": source.revision,
                    "architecture": ONNX if source.onnx else source.architecture,
                    "files": source.checksums(),
                    "compared_with": _versions(self.importer),
                    "largest_difference": self.largest_difference,
                },
            },
            "quantization": self._quantization(),
            "files": {file.name: sha256_of(file) for file in files},
        }
        return parse_manifest(content)

    def _contract(self, name: str, graph: ImportedGraph) -> dict[str, object]:
        devices = {"cuda": cuda_file(name)} if (self.directory / cuda_file(name)).is_file() else {}
        return {**graph.contract.model_dump(), "onnx": f"{name}.onnx", "devices": devices}

    def _dataset(self) -> dict[str, str]:
        name = f"texts of {self.samples.name}" if self.samples.name else "built-in sample texts"
        return {"dataset": f"{len(self.samples.held_out())} {name}", "split": "held out"}

    def _quality(self) -> list[dict[str, object]]:
        if self.agreement is None:
            return []
        values = {self.agreement.metric: self.agreement.value}
        values["largest difference of a probability"] = self.agreement.difference
        return [{"metric": metric, "value": round(value, 6), **self._dataset()} for metric, value in values.items()]

    def _quantization(self) -> dict[str, object] | None:
        if self.agreement is None:
            return None
        values = {"metric": self.agreement.metric, "value": round(self.agreement.value, 6), "float32_value": 1.0}
        return {"kind": self.importer.quantization, **values, **self._dataset()}


def _versions(importer: Importer) -> str:
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in importer.reference)


def write_bundle(
    importer: Importer,
    source: SourceDirectory,
    settings: BundleSettings,
    output: Path,
    samples: Samples,
    report: Report = lambda line: None,
) -> Imported:
    """Write `<output>/<name>/<version>/`; a failed import leaves nothing.

    `report` is called with a line for each step. Raises `FileExistsError` where that version exists and `force` is not
    set, `ImportRefused` where a log-probability differs from the reference by more than 1e-4, and for int8 of an
    architecture without, `ExportError` where the graphs for GPUs of an int8 bundle are wrong.
    """
    if settings.int8 and importer.quantization is None:
        raise ImportRefused("models of this architecture are imported in float32")
    target = output / settings.name / str(settings.version)
    check_target(target, force=settings.force, advice="use --version, or --force to replace it")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".import-") as temporary:
        directory = Path(temporary) / settings.name / str(settings.version)
        directory.mkdir(parents=True)
        report("exporting graphs")
        graphs = importer.graphs()
        work = _Import(
            importer=importer, source=source, settings=settings, samples=samples, directory=directory, graphs=graphs
        )
        imported = _write(work, report)
        place(directory, target)
    return replace(imported, path=target)


def _write(work: _Import, report: Report) -> Imported:
    """Write all files of the bundle."""
    importer = work.importer
    for name, write in importer.files().items():
        write(work.directory / name)
    models = {name: graph.model for name, graph in work.graphs.items()}
    work.save_graphs(models)
    work.write_manifest()
    loaded = load_bundle(work.directory)
    texts = work.samples.compared()
    report(f"comparing with {_versions(importer)} on {len(texts)} texts")
    work.largest_difference = importer.largest_difference(loaded, work.directory, texts)
    if not work.largest_difference <= TOLERANCE:
        raise ImportRefused(
            f"log-probabilities differ from those of {_versions(importer)} by {work.largest_difference:.1e}, "
            f"above {TOLERANCE:.0e}"
        )
    if work.settings.int8:
        report("quantizing to int8")
        _quantize(work, models, loaded)
    card = import_card(work.manifest(), importer.card(), len(texts))
    (work.directory / _CARD).write_text(card, encoding="utf-8")
    return Imported(work.directory, work.write_manifest(), work.largest_difference, work.agreement)


def _quantize(work: _Import, models: Mapping[str, onnx.ModelProto], float32: Any) -> None:
    """Replace the graphs by int8 ones, and compare them with those of float32, which stay loaded."""
    importer, texts = work.importer, work.samples.held_out()
    work.save_graphs(importer.quantize(models, float32, work.samples.calibration()))
    work.write_manifest()
    work.agreement = importer.agreement(float32, load_bundle(work.directory), texts)
    derived = importer.agreement(float32, load_bundle(work.directory, graphs="cuda"), texts)
    check_device_graphs(derived.difference, work.agreement.difference)
