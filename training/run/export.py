"""Export a run: its best checkpoint is the source of a bundle."""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import onnx

from models.bundle.manifest import INT4_WEIGHTS, Manifest, SplitData, Training
from training.bundling.bundle import BundleGraph, BundleSettings, BundleSource, BundleWriter, Draft, WrittenBundle
from training.bundling.folding import layer_section
from training.bundling.model_card import model_card, training_sentence
from training.bundling.onnx import to_onnx
from training.bundling.torchscript import save_torchscript
from training.bundling.verify import ExportError, verify_bundle, verify_device_graphs
from training.bundling.weight_file import WeightFile
from training.data.identity import SplitIdentity
from training.recipe.overrides import check_only
from training.run.baselines import read_baselines
from training.run.directory import RunDirectory, end_of_training
from training.run.new_data import changed_data, data_of
from training.run.session import load_trained
from training.tasks.task import Task

__all__ = ["Int8Comparison", "TrainedModel", "export_run"]

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


def export_run(
    run: RunDirectory,
    output: Path,
    data_dir: Path,
    *,
    references: Mapping[str, float] | None = None,
    force: bool = False,
    overrides: Sequence[str] = (),
    report: Callable[[str], object] = lambda line: None,
) -> WrittenBundle[Int8Comparison]:
    """Write `<output>/<name>/<version>/` from a run's best checkpoint.

    `references` are other models' values of the first metric on the test split, for the model card; `overrides` such as
    `export.version=2` set fields of the recipe's section `export`, `output_layer.kernels` adds a cache of constant
    weight to those of the run, and other fields raise `ValueError`. `report` is called with a line for each step, and
    says how far the run was trained and how its data has changed since.
    Raises `FileExistsError` where that version exists and `force` is not set, `ExportError` where a graph differs from
    the model by more than 1e-4, and for a quantization that the task does not have, `FileNotFoundError` where the run
    has no checkpoint, `ValueError` for an unknown corpus. A failed export leaves nothing.
    """
    check_only(overrides, "export", "output_layer.kernels")
    task = load_trained(run, data_dir, "cpu", overrides)
    report(f"{task.recipe.name}: comparing the data with that of {run.path}")
    data = data_of(task.recipe, data_dir)
    if (change := changed_data(run, task.recipe, data)) is not None:
        report(change)
    measured = {each.name: each.test for each in read_baselines(run)}
    source = TrainedModel(run, task, {**measured, **(references or {})}, data)
    report(training_sentence(source.training))
    export = source.recipe.export
    settings = BundleSettings(
        name=source.recipe.name,
        version=export.version,
        description=export.description,
        licence=export.licence,
        quantization=export.quantization,
        force=force,
    )
    return BundleWriter(source, settings, report).write(output)


class TrainedModel(BundleSource[Int8Comparison]):
    """The model of a run as the source of a bundle."""

    advice = "raise export.version in the recipe, or use --force"

    def __init__(
        self,
        run: RunDirectory,
        task: Task[Any],
        references: Mapping[str, float],
        data: Mapping[str, SplitIdentity],
    ) -> None:
        """`data` is that of the splits now, on which the bundle is measured.

        Raise `ExportError` for a model that cannot be exported, `ValueError` for an unknown corpus.
        """
        self.recipe, self.task = task.recipe, task.recipe.task
        self._run, self._trained, self._references = run, task, references
        self._special = task.exporter(task)
        self._check_quantization()
        for corpus in self.recipe.export.also_test_on:
            self.recipe.data.on_corpus(corpus)
        self.training = _training(run, task)
        self._splits = _splits(run, task, data)
        self._differences: dict[str, float] = {}
        self._float32: list[dict[str, Any]] = []
        """Quality on the test split before quantization."""

    def _check_quantization(self) -> None:
        wanted, int8 = self.recipe.export.quantization, self._special.quantization is not None
        if (wanted == "int8" and not int8) or (wanted == "int4" and not self._special.int4):
            others = " or int8" if int8 else ""
            only = "; int4 is for causal language models" if wanted == "int4" else ""
            raise ExportError(f"export.quantization: models of {self.task} are exported in float32{others}{only}")

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        torchscript = self._special.torchscript if self.recipe.export.torchscript else None
        return {
            name: BundleGraph(graph.contract.model_copy(update={"torchscript": torchscript}), to_onnx(graph, weights))
            for name, graph in self._special.graphs.items()
        }

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        if not self.recipe.export.torchscript:
            return self._special.files()
        graphs = self._special.graphs
        return {**self._special.files(), self._special.torchscript: lambda path: save_torchscript(graphs, path)}

    def config(self) -> Mapping[str, object]:
        return self._special.config()

    def softmax(self) -> Mapping[str, object]:
        return layer_section(self._trained.model.output_layer)

    def provenance(self) -> Mapping[str, object]:
        return {
            "recipe": self.recipe.model_dump(mode="json"),
            "git_revision": self._run.provenance()["git_revision"],
            "data": self.recipe.sources(),
            "training_seconds": round(self._run.training_seconds(), 1),
            "training": self.training.model_dump(),
            "splits": {name: split.model_dump() for name, split in self._splits.items()},
        }

    def verify(self, draft: Draft) -> Mapping[str, float]:
        draft.report("comparing the graphs with the trained module")
        self._differences = verify_bundle(draft.directory, draft.save_manifest(), self._special.largest_difference)
        return self._differences

    def quantized(self, draft: Draft) -> Mapping[str, onnx.ModelProto]:
        self._float32 = self._measured(draft, "test")
        if draft.settings.quantization == "int4":
            return self._special.quantize_int4(draft.models)
        return self._special.quantize(draft.models)

    def measure(self, draft: Draft) -> None:
        quantized = draft.settings.quantization != "none"
        if quantized:
            verify_device_graphs(draft.directory, draft.save_manifest(), self._special.largest_difference)
        draft.section |= self._special.calibrated(draft.load(), self._trained.data_dir)
        for name, content in self._special.calibration_files.items():
            (draft.directory / name).write_bytes(content)
        dev, test = self._measured(draft, "dev"), self._measured(draft, "test")
        if quantized:
            kind = INT4_WEIGHTS if draft.settings.quantization == "int4" else self._special.quantization
            draft.quantization = {"kind": kind, **test[0], "float32_value": self._float32[0]["value"]}
        elif self._special.quantization is not None:
            self.cost = self._compared(draft, dev)
        draft.quality += [*dev, *test]
        for corpus in self.recipe.export.also_test_on:
            draft.quality += self._measured(draft, "test", corpus)

    def extend(self, draft: Draft) -> None:
        self._special.extend(draft, self._trained.data_dir)

    def model_card(self, manifest: Manifest) -> str:
        given = self.recipe.model_dump(mode="json", exclude_defaults=True)
        card, differences = self._special.card(manifest), self._differences
        return model_card(manifest, card, given, differences=differences, references=self._references)

    def _measured(self, draft: Draft, split: str, corpus: str | None = None) -> list[dict[str, Any]]:
        """Return the quality of the bundle as it is now, as the manifest lists it, the most important number first."""
        recipe = self.recipe
        draft.report(f"measuring on {split}{f' of {corpus}' if corpus else ''}")
        if corpus is not None:
            recipe = recipe.model_copy(update={"data": recipe.data.on_corpus(corpus)})
        values = self._trained.measure_bundle(draft.load(), recipe, split, self._trained.data_dir)
        dataset = recipe.data.dataset(split)
        return [
            {"metric": metric, "value": round(value, 4), "dataset": dataset, "split": split}
            for metric, value in values.items()
        ]

    def _compared(self, draft: Draft, float32: list[dict[str, Any]]) -> Int8Comparison | None:
        """Return what int8 would cost; None where a metric that is not finite was left out."""
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary) / draft.settings.name / str(draft.settings.version)
            shutil.copytree(draft.directory, directory)
            copy = replace(draft, directory=directory)
            draft.report("measuring what int8 would cost")
            copy.save_graphs(self._special.quantize(draft.models))
            int8 = self._measured(copy, "dev")
            sizes = [sum(file.stat().st_size for file in each.iterdir()) / 1e6 for each in (draft.directory, directory)]
        if not float32 or not int8 or int8[0]["metric"] != float32[0]["metric"]:
            return None
        change = int8[0]["value"] - float32[0]["value"]
        return Int8Comparison(
            metric=float32[0]["metric"],
            float32=float32[0]["value"],
            int8=int8[0]["value"],
            loss=(-change if self._trained.maximize else change) / self._special.point,
            megabytes=(sizes[0], sizes[1]),
        )


def _training(run: RunDirectory, task: Task[Any]) -> Training:
    """Return how far a run was trained."""
    progress, loop = run.progress(maximize=task.maximize), task.recipe.loop
    best = progress.best
    assert best is not None
    ends: dict[str, Literal["planned", "patience", "time", "interrupted"]]
    ends = {"": "interrupted", "patience": "patience", "time": "time"}
    return Training(
        epochs=progress.epoch,
        planned_epochs=loop.epochs,
        steps=progress.step,
        best_epoch=best.epoch,
        earlier={each.splits["train"].sha256: each.epochs or 0 for each in run.data()[:-1] if "train" in each.splits},
        end=ends.get(end_of_training(progress, loop), "planned"),
    )


def _splits(run: RunDirectory, task: Task[Any], now: Mapping[str, SplitIdentity]) -> Mapping[str, SplitData]:
    """Return the data of each split: the training data of the last session, and the others as they are now."""
    versions = run.data()
    noted = versions[-1].splits if versions else {}
    found = {}
    for name, split in {**noted, **now}.items():
        split = noted.get(name, split) if name == "train" else split
        found[name] = SplitData(
            dataset=task.recipe.data.dataset(name),
            records=split.records,
            classes=len(split.classes) or None,
            tokens=task.token_count(name) if now.get(name) == split else None,
            sha256=split.sha256,
        )
    return found
