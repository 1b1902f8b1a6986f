"""Write bundles: a directory with graphs, files, manifest and model card, measured, verified and put in place at once.

A bundle is made of a `BundleSource`: a trained run (`training.run.export`) or a model of another program
(`training.importing.importer`).
"""

import abc
import datetime
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import onnx

from models.backend.onnx import OnnxBackend
from models.bundle.manifest import FORMAT_VERSION, MANIFEST, BundleName, Graph, Manifest
from models.reading import load_manifest, parse_manifest, sha256_of
from models.store import load_bundle
from training.bundling.device_graphs import cuda_file, cuda_graphs, with_cuda_graphs
from training.bundling.model_card import with_device_line
from training.bundling.onnx import WEIGHTS, save_graphs
from training.bundling.weight_file import WeightFile
from training.settings import PositiveInt, QuantizationName, Settings

__all__ = [
    "BundleGraph",
    "BundleSettings",
    "BundleSource",
    "BundleWriter",
    "Draft",
    "WrittenBundle",
    "add_device_graphs",
    "check_target",
    "place",
    "save_manifest",
]

_CARD = "MODEL_CARD.md"

CostT = TypeVar("CostT")


class BundleSettings(Settings):
    """Name and description of a bundle."""

    name: BundleName
    version: PositiveInt
    description: str
    licence: str
    quantization: QuantizationName = "none"
    """Integers that the graphs have for weights."""
    force: bool = False
    """Whether a bundle of the same version is replaced."""


@dataclass(frozen=True, slots=True)
class BundleGraph:
    """A graph of a bundle in float32, and its contract."""

    contract: Graph
    model: onnx.ModelProto


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenBundle(Generic[CostT]):
    """A finished bundle."""

    path: Path
    manifest: Manifest
    differences: Mapping[str, float]
    """Largest difference of the float32 graphs from each reference: a backend from the module, or from a library."""
    cost: CostT | None = None
    """What quantization costs, or int8 would cost, where it was measured."""

    @property
    def difference(self) -> float:
        """Return the largest difference from any reference."""
        return max(self.differences.values())


class BundleSource(abc.ABC, Generic[CostT]):
    """The content of a bundle, and the comparison of its graphs with the networks that they were made of.

    `BundleWriter` calls the methods in the order in which they are defined here.
    """

    task: str
    """The task of the bundle."""
    advice: ClassVar[str]
    """How the caller writes a bundle where one of this version exists."""
    cost: CostT | None = None
    """What quantization costs, or int8 would cost; set by `measure`."""

    @abc.abstractmethod
    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        """Return the graphs by name, in float32; their weights may be in a file that exists until the bundle does."""

    @abc.abstractmethod
    def files(self) -> Mapping[str, Callable[[Path], object]]:
        """Return the files in addition to graphs and model card, by name: a function that writes each."""

    @abc.abstractmethod
    def config(self) -> Mapping[str, object]:
        """Return the section of the manifest that the task's model class defines."""

    @abc.abstractmethod
    def softmax(self) -> Mapping[str, object] | None:
        """Return the output layer as the manifest describes it; None of a model without classes."""

    @abc.abstractmethod
    def provenance(self) -> Mapping[str, object]:
        """Return where the model comes from, as the manifest says it, without the date."""

    @abc.abstractmethod
    def verify(self, draft: "Draft") -> Mapping[str, float]:
        """Return the largest difference of the float32 graphs from each reference; raise where one is too large."""

    @abc.abstractmethod
    def quantized(self, draft: "Draft") -> Mapping[str, onnx.ModelProto]:
        """Return the graphs with the weights of `settings.quantization`; the draft still has those of float32."""

    @abc.abstractmethod
    def measure(self, draft: "Draft") -> None:
        """Set `quality` and `quantization` of a draft, and the fields of its section that are chosen on data.

        Raises `ExportError` where the graphs for GPUs of a quantized bundle are wrong.
        """

    def extend(self, draft: "Draft") -> None:
        """Add to the graphs of a draft choices that the measured bundle makes possible: nothing by default."""

    @abc.abstractmethod
    def model_card(self, manifest: Manifest) -> str:
        """Return the model card, Markdown."""


@dataclass(kw_only=True)
class Draft:
    """A bundle that is being written: its directory, and the measurements so far."""

    source: BundleSource[Any]
    settings: BundleSettings
    directory: Path
    graphs: Mapping[str, BundleGraph]
    report: Callable[[str], object]
    """Called with a line for each step."""
    section: dict[str, object] = field(default_factory=dict)
    """Fields of the section that are chosen on data."""
    quality: list[dict[str, object]] = field(default_factory=list)
    quantization: dict[str, object] | None = None

    @property
    def models(self) -> dict[str, onnx.ModelProto]:
        """Return the float32 graphs by name."""
        return {name: graph.model for name, graph in self.graphs.items()}

    def save_graphs(self, models: Mapping[str, onnx.ModelProto]) -> None:
        """Write graphs, and those for GPUs where they differ, in the place of those that are there."""
        (self.directory / WEIGHTS).unlink(missing_ok=True)  # loaded graphs may have it mapped
        save_graphs(with_cuda_graphs(models), self.directory)

    def save_manifest(self) -> Manifest:
        """Write the manifest of the files as they are now, and return it."""
        source, settings = self.source, self.settings
        files = sorted(file for file in self.directory.iterdir() if file.name != MANIFEST)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        content = {
            "format_version": FORMAT_VERSION,
            "task": source.task,
            "name": settings.name,
            "version": settings.version,
            "description": settings.description,
            "licence": settings.licence,
            "softmax": source.softmax(),
            "graphs": {name: self._contract(name, graph.contract) for name, graph in self.graphs.items()},
            "config": {**source.config(), **self.section},
            "quality": self.quality,
            "provenance": {**source.provenance(), "date": today},
            "quantization": self.quantization,
            "files": {file.name: sha256_of(file) for file in files},
        }
        return save_manifest(self.directory, content)

    def _contract(self, name: str, contract: Graph) -> dict[str, object]:
        devices = {"cuda": cuda_file(name)} if (self.directory / cuda_file(name)).is_file() else {}
        return {**contract.model_dump(), "onnx": f"{name}.onnx", "devices": devices}

    def load(self, graphs: Literal["cpu", "cuda"] = "cpu") -> Any:
        """Return the model of the files as they are now, by the code that serves it."""
        self.save_manifest()
        return load_bundle(self.directory, graphs=graphs)


class BundleWriter(Generic[CostT]):
    """Writes the bundle of a source."""

    def __init__(
        self, source: BundleSource[CostT], settings: BundleSettings, report: Callable[[str], object] = lambda line: None
    ) -> None:
        """`report` is called with a line for each step."""
        self._source, self._settings, self._report = source, settings, report

    def write(self, output: Path) -> WrittenBundle[CostT]:
        """Write `<output>/<name>/<version>/`; a bundle that cannot be finished leaves nothing.

        Raises `FileExistsError` where that version exists and `force` is not set, and the errors of the source.
        """
        settings = self._settings
        target = output / settings.name / str(settings.version)
        check_target(target, force=settings.force, advice=self._source.advice)
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output, prefix=".bundle-") as temporary:
            directory = Path(temporary) / settings.name / str(settings.version)
            directory.mkdir(parents=True)
            manifest, differences = self._write(directory)
            place(directory, target)
        return WrittenBundle(path=target, manifest=manifest, differences=differences, cost=self._source.cost)

    def _write(self, directory: Path) -> tuple[Manifest, Mapping[str, float]]:
        """Write all files; return the manifest, and the differences of the float32 graphs from their references."""
        source, settings = self._source, self._settings
        self._report("exporting graphs")
        graphs = source.graphs(WeightFile(directory.with_name(f"{directory.name}.exported")))
        draft = Draft(source=source, settings=settings, directory=directory, graphs=graphs, report=self._report)
        for name, write in source.files().items():
            write(directory / name)
        draft.save_graphs(draft.models)
        differences = source.verify(draft)
        if settings.quantization != "none":
            self._report(f"quantizing to {settings.quantization}")
            draft.save_graphs(source.quantized(draft))
        source.measure(draft)
        source.extend(draft)
        (directory / _CARD).write_text(source.model_card(draft.save_manifest()), encoding="utf-8")
        return draft.save_manifest(), differences


def save_manifest(directory: Path, content: Mapping[str, object]) -> Manifest:
    """Write the manifest of a directory, and return it; raises `ValidationError` for one that is wrong."""
    manifest = parse_manifest(content)
    (directory / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return manifest


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


def add_device_graphs(bundle: Path, *, float16: bool = False) -> list[str]:
    """Replace the graphs for CUDA of a bundle, and return the names of the files that were written.

    Weights and other graphs stay as they are; the manifest becomes one of the newest format. Raises `BundleError` for
    an invalid bundle, and where a new graph does not load; the bundle is as it was then.
    """
    manifest = load_manifest(bundle)
    files = {name: graph.onnx for name, graph in manifest.graphs.items() if graph.onnx is not None}
    models = {name: onnx.load(bundle / file, load_external_data=False) for name, file in files.items()}
    derived = cuda_graphs(models, float16=float16)
    if not derived and not any(graph.devices for graph in manifest.graphs.values()):
        return []
    content = manifest.model_dump(mode="json")
    with tempfile.TemporaryDirectory(dir=bundle.parent, prefix=".device-graphs-") as temporary:
        directory = Path(temporary) / bundle.name
        shutil.copytree(bundle, directory)
        for name, graph in content["graphs"].items():
            for file in graph["devices"].values():
                (directory / file).unlink()
                del content["files"][file]
            graph["devices"] = {}
            if name in derived:
                file = cuda_file(name)
                onnx.save_model(derived[name], directory / file)
                graph["devices"] = {"cuda": file}
                content["files"][file] = sha256_of(directory / file)
        if (card := directory / _CARD).is_file():
            text = with_device_line(card.read_text(encoding="utf-8"), parse_manifest(content))
            card.write_text(text, encoding="utf-8")
            content["files"][_CARD] = sha256_of(card)
        content["files"] = dict(sorted(content["files"].items()))
        changed = save_manifest(directory, content)
        OnnxBackend(directory, changed, graphs="cuda")  # raises where a graph does not load
        place(directory, bundle)
    return [cuda_file(name) for name in derived]
