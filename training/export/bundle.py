"""From a run directory to a bundle: graphs, tokenizer, manifest, model card, all measured and verified."""

import datetime
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import onnx

from models.backend import Backend
from models.bundle.manifest import FORMAT_VERSION, MANIFEST, Graph, Manifest, sha256_of
from models.bundle.store import Model, load_bundle
from models.text.tokenization import EncoderTokenizer, SubwordTokenizer, WordTokenizer
from training.checkpoint import RunDirectory
from training.data.corpora import get_corpus
from training.data.corpus import Corpus
from training.data.image_corpora import ImageCorpus, get_image_corpus
from training.export.graphs import ExportGraph
from training.export.image_classification import ImageClassificationExport
from training.export.language_model import LanguageModelExport
from training.export.model_card import model_card
from training.export.onnx import save_graphs, to_onnx
from training.export.text_classification import TextClassificationExport
from training.export.text_generation import TextGenerationExport
from training.export.torchscript import save_torchscript
from training.export.translation import TranslationExport
from training.export.verify import verify_bundle
from training.networks.pretrained import PRETRAINED, Pretrained
from training.overrides import check_only_export
from training.recipe import AnyRecipe, ImageClassificationRecipe, LanguageModelRecipe, TranslationRecipe
from training.tasks.language_model import LanguageModelTask
from training.tasks.registry import AnyTask
from training.tasks.text_classification import TextClassificationTask
from training.tasks.text_generation import TextGenerationTask
from training.tasks.translation import TranslationTask
from training.trained import load_trained

__all__ = ["OWN_FILES", "Exported", "TaskExport", "data_sources", "export_run"]

OWN_FILES = "user's own files"
"""Homepage and licence of data that are in no registry."""

_TOKENIZER, _CARD = "tokenizer.json", "MODEL_CARD.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """A finished export."""

    path: Path
    manifest: Manifest
    differences: dict[str, float]
    """Largest difference from eager, by backend, before quantization."""


class TaskExport(Protocol):
    """What differs from task to task."""

    torchscript: str
    """Name of the TorchScript file."""
    graphs: Mapping[str, ExportGraph]

    @property
    def tokenizer(self) -> WordTokenizer | SubwordTokenizer | EncoderTokenizer | None:
        """Of a model that reads texts."""
        ...

    @property
    def task(self) -> AnyTask: ...

    def description(self) -> Mapping[str, object]:
        """Manifest fields of this task alone, or that it has other values for."""
        ...

    def files(self) -> Mapping[str, str]:
        """Text files beside graphs, tokenizer and model card."""
        ...

    def largest_difference(self, backend: Backend, manifest: Manifest) -> float:
        """Of a backend's outputs from the module's, at several shapes."""
        ...

    quantization: str
    """How `quantize` narrows weights, as the manifest says it."""

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        """The graphs with int8 weights."""
        ...

    def measure(self, model: Model, split: str, corpus: str | None = None) -> Mapping[str, float]:
        """Finite metrics of a loaded bundle on a split, the most important first; of another corpus where named."""
        ...


def _task_export(task: AnyTask) -> TaskExport:
    if isinstance(task, LanguageModelTask):
        return LanguageModelExport(task)
    if isinstance(task, TranslationTask):
        return TranslationExport(task)
    if isinstance(task, TextGenerationTask):
        return TextGenerationExport(task)
    if isinstance(task, TextClassificationTask):
        return TextClassificationExport(task)
    return ImageClassificationExport(task)


@dataclass(kw_only=True)
class _Export:
    """What the steps of one export share."""

    run: RunDirectory
    recipe: AnyRecipe
    special: TaskExport
    directory: Path
    quality: list[dict[str, object]] = field(default_factory=list)
    quantization: dict[str, object] | None = None

    def manifest(self) -> Manifest:
        """The manifest of the files as they are now."""
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
            **self._vocabulary(),
            "limits": {"max_tokens": recipe.export.max_tokens},
            **self.special.description(),
            "quality": self.quality,
            "provenance": {
                "recipe": recipe.model_dump(mode="json"),
                "git_revision": self.run.provenance()["git_revision"],
                "data": data_sources(recipe),
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "training_seconds": round(self.run.training_seconds(), 1),
            },
            "quantization": self.quantization,
            "files": {file.name: sha256_of(file) for file in files},
        }
        return Manifest.model_validate(content, strict=False)

    def _softmax(self) -> dict[str, object]:
        layer = self.special.task.model.output_layer
        kernels = [{"name": kernel.name, "hyperparameters": kernel.hyperparameters} for kernel in layer.components()]
        return {"kernels": kernels, "sparse_k": layer.sparse_k, "untied": layer.untied}

    def _vocabulary(self) -> dict[str, object]:
        tokenizer = self.special.tokenizer
        if tokenizer is None:
            return {}
        special = {"unknown": tokenizer.unknown_id, "end": tokenizer.end_id}
        return {"tokenizer": _TOKENIZER, "vocab_size": tokenizer.vocab_size, "special_tokens": special}

    def _contract(self, name: str, contract: Graph) -> dict[str, object]:
        torchscript = self.special.torchscript if self.recipe.export.torchscript else None
        return {**contract.model_dump(), "onnx": f"{name}.onnx", "torchscript": torchscript}

    def write(self, manifest: Manifest) -> None:
        (self.directory / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")

    def measure(self, split: str, corpus: str | None = None) -> list[dict[str, object]]:
        """The quality of the bundle as it is now, as the manifest says it, the most important number first."""
        self.write(self.manifest())
        values = self.special.measure(load_bundle(self.directory), split, corpus)
        dataset = corpus or self.recipe.data.dataset(split)
        return [
            {"metric": metric, "value": round(value, 4), "dataset": dataset, "split": split}
            for metric, value in values.items()
        ]


def data_sources(recipe: AnyRecipe) -> list[dict[str, str]]:
    """What the manifest says of a recipe's data, and of the weights it starts from."""
    corpus: Corpus | ImageCorpus | None = None
    if recipe.data.corpus is not None:
        images = isinstance(recipe, ImageClassificationRecipe)
        corpus = (get_image_corpus if images else get_corpus)(recipe.data.corpus)
    sources = [_source(corpus.name, corpus) if corpus else _source(recipe.data.dataset("train"), None)]
    if not isinstance(recipe, LanguageModelRecipe | TranslationRecipe) and recipe.network.pretrained is not None:
        encoder = PRETRAINED.get(recipe.network.pretrained)
        name = encoder.name if encoder else Path(recipe.network.pretrained).name
        sources.append(_source(f"weights of {name}", encoder))
    return sources


def _source(name: str, origin: Corpus | ImageCorpus | Pretrained | None) -> dict[str, str]:
    if origin is None:
        return {"name": name, "homepage": OWN_FILES, "licence": OWN_FILES}
    return {"name": name, "homepage": origin.homepage, "licence": origin.licence}


def export_run(
    run: RunDirectory,
    output: Path,
    data_dir: Path,
    *,
    references: Mapping[str, float] | None = None,
    force: bool = False,
    overrides: Sequence[str] = (),
) -> Exported:
    """Writes `<output>/<name>/<version>/` from a run's best checkpoint.

    `references` are other models' values of the first metric on the test split, for the model card; `overrides` such as
    `export.version=2` set fields of the recipe's section `export`, and raise `ValueError` for other fields.
    Raises `FileExistsError` where that version exists and `force` is not set, `ExportError` where a graph differs from
    the model by more than 1e-4, `FileNotFoundError` where the run has no checkpoint, `ValueError` for an unknown
    corpus. A failed export leaves nothing.
    """
    check_only_export(overrides)
    task = load_trained(run, data_dir, "cpu", overrides)
    recipe = task.recipe
    for corpus in recipe.export.also_test_on:
        get_corpus(corpus)
    target = output / recipe.name / str(recipe.export.version)
    if target.exists() and not force:
        raise FileExistsError(f"{target} exists; raise export.version in the recipe, or use --force")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".export-") as temporary:
        directory = Path(temporary) / recipe.name / str(recipe.export.version)
        directory.mkdir(parents=True)
        export = _Export(run=run, recipe=recipe, special=_task_export(task), directory=directory)
        exported = _write(export, references or {})
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            shutil.rmtree(target)
        directory.rename(target)
    return Exported(path=target, manifest=exported.manifest, differences=exported.differences)


def _write(export: _Export, references: Mapping[str, float]) -> Exported:
    special = export.special
    if special.tokenizer is not None:
        special.tokenizer.save(export.directory / _TOKENIZER)
    for name, text in special.files().items():
        (export.directory / name).write_text(text, encoding="utf-8")
    models = {name: to_onnx(graph) for name, graph in special.graphs.items()}
    save_graphs(models, export.directory)
    if export.recipe.export.torchscript:
        save_torchscript(special.graphs, export.directory / special.torchscript)
    manifest = export.manifest()
    differences = verify_bundle(export.directory, manifest, special.largest_difference)
    test = export.measure("test")
    if export.recipe.export.quantization == "int8":
        test = _quantize(export, models, test)
    export.quality += [*export.measure("dev"), *test]
    for corpus in export.recipe.export.also_test_on:
        export.quality += export.measure("test", corpus)
    card = model_card(export.manifest(), differences=differences, references=references)
    (export.directory / _CARD).write_text(card, encoding="utf-8")
    manifest = export.manifest()
    export.write(manifest)
    return Exported(path=export.directory, manifest=manifest, differences=differences)


def _quantize(
    export: _Export, models: Mapping[str, onnx.ModelProto], float32: list[dict[str, object]]
) -> list[dict[str, object]]:
    """Replaces the ONNX graphs by int8 ones, notes what that cost on the test split, returns the new quality."""
    save_graphs(export.special.quantize(models), export.directory)
    int8 = export.measure("test")
    export.quantization = {"kind": export.special.quantization, **int8[0], "float32_value": float32[0]["value"]}
    return int8
