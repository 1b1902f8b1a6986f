"""From a run directory to a bundle: graphs, tokenizer, manifest, model card, all measured and verified."""

import datetime
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from models.backend.onnx import OnnxBackend
from models.bundle.manifest import FORMAT_VERSION, MANIFEST, Graph, Manifest
from models.reading import load_manifest, parse_manifest, sha256_of
from models.store import load_bundle
from training.export.device_graphs import cuda_file, cuda_graphs, with_cuda_graphs
from training.export.model_card import model_card, with_device_line
from training.export.onnx import save_graphs, to_onnx
from training.export.placing import check_target, place
from training.export.task_export import TaskExport
from training.export.torchscript import save_torchscript
from training.export.verify import ExportError, verify_bundle, verify_device_graphs
from training.overrides import check_only_export
from training.recipe import Recipe
from training.run_directory import RunDirectory
from training.tasks.task import Task
from training.trained import load_trained

__all__ = ["Exported", "Int8Comparison", "add_device_graphs", "export_run"]

_CARD = "MODEL_CARD.md"
_ACCEPTABLE_LOSS = 0.3
"""Points of the first metric that int8 may lose to be suggested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Int8Comparison:
    """What int8 would cost a bundle that is exported in float32, on the validation split."""

    metric: str
    float32: float
    int8: float
    loss: float
    """Points that int8 loses; below 0 where it is better."""
    megabytes: tuple[float, float]
    """Size of the bundle in float32 and in int8."""

    def advice(self) -> str:
        """Return a line that suggests int8, or says why not."""
        before, after = self.megabytes
        change = f"{self.metric} {self.int8:.4g} instead of {self.float32:.4g} on the validation split"
        size = f"{after:.1f} instead of {before:.1f} MB"
        if self.loss < _ACCEPTABLE_LOSS:
            return f"int8 is suggested: {change}, {size}; --force --set export.quantization=int8"
        return f"float32 is the better choice: int8 has {change}, {size}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """A finished export."""

    path: Path
    manifest: Manifest
    differences: dict[str, float]
    """Largest difference from eager, by backend, before quantization."""
    int8: Int8Comparison | None = None
    """What int8 would cost, where the bundle is float32 and the task has int8."""


@dataclass(kw_only=True)
class _Export:
    """The state that the steps of one export share."""

    run: RunDirectory
    task: Task[Any]
    special: TaskExport
    directory: Path
    quality: list[dict[str, object]] = field(default_factory=list)
    quantization: dict[str, object] | None = None
    calibrated: Mapping[str, object] = field(default_factory=dict)
    """Fields of the section that are chosen on the validation split."""

    @property
    def recipe(self) -> Recipe:
        return self.task.recipe

    def manifest(self) -> Manifest:
        """Return the manifest of the files as they are now."""
        recipe = self.recipe
        files = sorted(file for file in self.directory.iterdir() if file.name != MANIFEST)
        content = {
            "format_version": FORMAT_VERSION,
            "task": recipe.task,
            "name": recipe.name,
            "version": recipe.export.version,
            "description": recipe.export.description,
            "licence": recipe.export.licence,
            "softmax": self._softmax(),
            "graphs": {name: self._contract(name, graph.contract) for name, graph in self.special.graphs.items()},
            "config": {**self.special.config(), **self.calibrated},
            "quality": self.quality,
            "provenance": {
                "recipe": recipe.model_dump(mode="json"),
                "git_revision": self.run.provenance()["git_revision"],
                "data": recipe.sources(),
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "training_seconds": round(self.run.training_seconds(), 1),
            },
            "quantization": self.quantization,
            "files": {file.name: sha256_of(file) for file in files},
        }
        return parse_manifest(content)

    def _softmax(self) -> dict[str, object]:
        layer = self.task.model.output_layer
        kernels = [{"name": kernel.name, "hyperparameters": kernel.hyperparameters} for kernel in layer.components()]
        return {"kernels": kernels, "sparse_k": layer.sparse_k, "untied": layer.untied, "bias": layer.bias is not None}

    def _contract(self, name: str, contract: Graph) -> dict[str, object]:
        torchscript = self.special.torchscript if self.recipe.export.torchscript else None
        devices = {"cuda": cuda_file(name)} if (self.directory / cuda_file(name)).is_file() else {}
        return {**contract.model_dump(), "onnx": f"{name}.onnx", "devices": devices, "torchscript": torchscript}

    def write(self, manifest: Manifest) -> None:
        (self.directory / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")

    def measure(self, split: str, corpus: str | None = None) -> list[dict[str, object]]:
        """Return the quality of the bundle as it is now, as the manifest lists it, the most important number first."""
        self.write(self.manifest())
        recipe = self.recipe
        if corpus is not None:
            recipe = recipe.model_copy(update={"data": recipe.data.on_corpus(corpus)})
        values = self.special.measure(load_bundle(self.directory), recipe, split, self.task.data_dir)
        dataset = recipe.data.dataset(split)
        return [
            {"metric": metric, "value": round(value, 4), "dataset": dataset, "split": split}
            for metric, value in values.items()
        ]


def export_run(
    run: RunDirectory,
    output: Path,
    data_dir: Path,
    *,
    references: Mapping[str, float] | None = None,
    force: bool = False,
    overrides: Sequence[str] = (),
) -> Exported:
    """Write `<output>/<name>/<version>/` from a run's best checkpoint.

    `references` are other models' values of the first metric on the test split, for the model card; `overrides` such as
    `export.version=2` set fields of the recipe's section `export`, and raise `ValueError` for other fields.
    Raises `FileExistsError` where that version exists and `force` is not set, `ExportError` where a graph differs from
    the model by more than 1e-4, and for int8 of a task without, `FileNotFoundError` where the run has no checkpoint,
    `ValueError` for an unknown corpus. A failed export leaves nothing.
    """
    check_only_export(overrides)
    task = load_trained(run, data_dir, "cpu", overrides)
    recipe, special = task.recipe, task.exporter(task)
    if recipe.export.quantization != "none" and special.quantization is None:
        raise ExportError(f"export.quantization: models of {recipe.task} are exported in float32")
    for corpus in recipe.export.also_test_on:
        recipe.data.on_corpus(corpus)
    target = output / recipe.name / str(recipe.export.version)
    check_target(target, force=force, advice="raise export.version in the recipe, or use --force")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".export-") as temporary:
        directory = Path(temporary) / recipe.name / str(recipe.export.version)
        directory.mkdir(parents=True)
        export = _Export(run=run, task=task, special=special, directory=directory)
        exported = _write(export, references or {})
        place(directory, target)
    return replace(exported, path=target)


def _write(export: _Export, references: Mapping[str, float]) -> Exported:
    """Write all files of the bundle."""
    special = export.special
    for name, write in special.files().items():
        write(export.directory / name)
    models = {name: to_onnx(graph) for name, graph in special.graphs.items()}
    save_graphs(with_cuda_graphs(models), export.directory)
    if export.recipe.export.torchscript:
        save_torchscript(special.graphs, export.directory / special.torchscript)
    manifest = export.manifest()
    differences = verify_bundle(export.directory, manifest, special.largest_difference)
    quantized, int8 = export.recipe.export.quantization == "int8", None
    float32 = export.measure("test") if quantized else []
    if quantized:
        save_graphs(with_cuda_graphs(special.quantize(models)), export.directory)
        verify_device_graphs(export.directory, export.manifest(), special.largest_difference)
    export.write(export.manifest())
    export.calibrated = special.calibrated(load_bundle(export.directory), export.task.data_dir)
    dev, test = export.measure("dev"), export.measure("test")
    if quantized:
        export.quantization = {"kind": special.quantization, **test[0], "float32_value": float32[0]["value"]}
    elif special.quantization is not None:
        int8 = _compared(export, models, dev)
    export.quality += [*dev, *test]
    for corpus in export.recipe.export.also_test_on:
        export.quality += export.measure("test", corpus)
    card = model_card(export.manifest(), differences=differences, references=references)
    (export.directory / _CARD).write_text(card, encoding="utf-8")
    manifest = export.manifest()
    export.write(manifest)
    return Exported(path=export.directory, manifest=manifest, differences=differences, int8=int8)


def _compared(
    export: _Export, models: Mapping[str, onnx.ModelProto], float32: list[dict[str, Any]]
) -> Int8Comparison | None:
    """Return what int8 would cost; None where a metric that is not finite was left out."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / export.recipe.name / str(export.recipe.export.version)
        shutil.copytree(export.directory, directory)
        save_graphs(with_cuda_graphs(export.special.quantize(models)), directory)
        int8: list[dict[str, Any]] = replace(export, directory=directory).measure("dev")
        sizes = [sum(file.stat().st_size for file in each.iterdir()) / 1e6 for each in (export.directory, directory)]
    if not float32 or not int8 or int8[0]["metric"] != float32[0]["metric"]:
        return None
    change = int8[0]["value"] - float32[0]["value"]
    return Int8Comparison(
        metric=float32[0]["metric"],
        float32=float32[0]["value"],
        int8=int8[0]["value"],
        loss=(-change if export.task.maximize else change) / export.special.point,
        megabytes=(sizes[0], sizes[1]),
    )


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
        changed = parse_manifest(content)
        OnnxBackend(directory, changed, graphs="cuda")  # raises where a graph does not load
        (directory / MANIFEST).write_text(changed.model_dump_json(indent=2) + "\n", encoding="utf-8")
        place(directory, bundle)
    return [cuda_file(name) for name in derived]
