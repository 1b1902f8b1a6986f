"""From a run directory to a bundle: graphs, tokenizer, manifest, model card, all measured and verified."""

import datetime
import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import torch

from models.language_model import LanguageModel
from models.manifest import FORMAT_VERSION, MANIFEST, Graph, Manifest, sha256_of
from models.store import load_bundle
from models.tokenization import WordTokenizer
from training import checkpoint
from training.checkpoint import RunDirectory
from training.data.corpora import get_corpus
from training.export.graphs import ExportGraph, language_model_graphs
from training.export.model_card import model_card
from training.export.onnx import save_graphs, to_onnx
from training.export.quantize import quantize_int8
from training.export.torchscript import save_torchscript
from training.export.verify import verify_bundle
from training.networks.language_model import RecurrentLanguageModel
from training.recipe import Recipe
from training.tasks.language_model import Perplexity, build_model, split_texts

__all__ = ["Exported", "bundle_perplexity", "export_run"]

_TOKENIZER, _TORCHSCRIPT, _CARD = "tokenizer.json", "language_model.pt", "MODEL_CARD.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """A finished export."""

    path: Path
    manifest: Manifest
    differences: dict[str, float]
    """Largest difference from eager, by backend, before quantization."""


@dataclass(kw_only=True)
class _Export:
    """What the steps of one export share."""

    run: RunDirectory
    recipe: Recipe
    model: RecurrentLanguageModel
    tokenizer: WordTokenizer
    graphs: Mapping[str, ExportGraph]
    data_dir: Path
    directory: Path
    torchscript: bool
    quality: list[dict[str, object]] = field(default_factory=list)
    quantization: dict[str, object] | None = None

    def manifest(self) -> Manifest:
        """The manifest of the files as they are now."""
        recipe, corpus = self.recipe, get_corpus(self.recipe.data.corpus)
        layers, size = self.model.network.state_shape
        files = sorted(file for file in self.directory.iterdir() if file.name != MANIFEST)
        content = {
            "format_version": FORMAT_VERSION,
            "task": recipe.task,
            "name": recipe.name,
            "version": recipe.export.version,
            "description": recipe.export.description,
            "licence": recipe.export.licence,
            "softmax": self._softmax(),
            "network": {"kind": "lstm", "hidden_size": size, "num_layers": layers},
            "graphs": {name: self._contract(name, graph.contract) for name, graph in self.graphs.items()},
            "tokenizer": _TOKENIZER,
            "vocab_size": self.tokenizer.vocab_size,
            "special_tokens": {"unknown": self.tokenizer.unknown_id, "end": self.tokenizer.end_id},
            "limits": {"max_tokens": recipe.export.max_tokens},
            "quality": self.quality,
            "provenance": {
                "recipe": recipe.model_dump(mode="json"),
                "git_revision": self.run.provenance()["git_revision"],
                "data": [{"name": corpus.name, "homepage": corpus.homepage, "licence": corpus.licence}],
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "training_seconds": round(self.run.training_seconds(), 1),
            },
            "quantization": self.quantization,
            "files": {file.name: sha256_of(file) for file in files},
        }
        return Manifest.model_validate(content, strict=False)

    def _softmax(self) -> dict[str, object]:
        layer = self.model.output_layer
        kernels = [{"name": kernel.name, "hyperparameters": kernel.hyperparameters} for kernel in layer.components()]
        return {"kernels": kernels, "sparse_k": layer.sparse_k, "untied": layer.untied}

    def _contract(self, name: str, contract: Graph) -> dict[str, object]:
        files = {"onnx": f"{name}.onnx", "torchscript": _TORCHSCRIPT if self.torchscript else None}
        return {**contract.model_dump(), **files}

    def write(self, manifest: Manifest) -> None:
        (self.directory / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")

    def measure(self, split: str) -> list[dict[str, object]]:
        """The quality of the bundle as it is now, as the manifest says it, the most important number first."""
        self.write(self.manifest())
        texts = split_texts(self.recipe.data, split, self.data_dir)
        result = bundle_perplexity(load_bundle(self.directory), texts)
        if self.model.output_layer.sparse_k is None:
            values = {"perplexity": result.value}
        else:  # its perplexity is infinite with the first word that it gives no probability
            values = {"coverage": result.coverage, "perplexity_of_covered": result.of_possible}
        return [
            {"metric": metric, "value": round(value, 4), "dataset": self.recipe.data.corpus, "split": split}
            for metric, value in values.items()
            if math.isfinite(value)
        ]


def export_run(
    run: RunDirectory,
    output: Path,
    data_dir: Path,
    *,
    references: Mapping[str, float] | None = None,
    force: bool = False,
) -> Exported:
    """Writes `<output>/<name>/<version>/` from a run's best checkpoint.

    `references` are perplexities of other models on the test split, for the model card.
    Raises `FileExistsError` where that version exists and `force` is not set, `ExportError` where a graph differs from
    the model by more than 1e-4, `FileNotFoundError` where the run has no checkpoint. A failed export leaves nothing.
    """
    recipe = run.recipe()
    target = output / recipe.name / str(recipe.export.version)
    if target.exists() and not force:
        raise FileExistsError(f"{target} exists; raise export.version in the recipe, or use --force")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".export-") as temporary:
        directory = Path(temporary) / recipe.name / str(recipe.export.version)
        directory.mkdir(parents=True)
        exported = _write(_start(run, recipe, data_dir, directory), references or {})
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            shutil.rmtree(target)
        directory.rename(target)
    return Exported(path=target, manifest=exported.manifest, differences=exported.differences)


def bundle_perplexity(model: LanguageModel, texts: list[str]) -> Perplexity:
    """Perplexity of a loaded bundle through the same code that serves it."""
    return Perplexity.of(token.log_probability for score in model.score(texts) for token in score.tokens)


def _start(run: RunDirectory, recipe: Recipe, data_dir: Path, directory: Path) -> _Export:
    if not run.best.is_file():
        raise FileNotFoundError(f"{run.path} has no best.pt yet: the run has not finished an epoch")
    tokenizer = WordTokenizer.from_file(run.tokenizer)
    model = build_model(recipe, tokenizer.vocab_size)
    model.load_state_dict(checkpoint.load(run.best, torch.device("cpu"))["model"])
    return _Export(
        run=run,
        recipe=recipe,
        model=model.eval(),
        tokenizer=tokenizer,
        graphs=language_model_graphs(model.eval()),
        data_dir=data_dir,
        directory=directory,
        torchscript=recipe.export.torchscript,
    )


def _write(export: _Export, references: Mapping[str, float]) -> Exported:
    export.tokenizer.save(export.directory / _TOKENIZER)
    models = {name: to_onnx(graph) for name, graph in export.graphs.items()}
    save_graphs(models, export.directory)
    if export.torchscript:
        save_torchscript(export.graphs, export.directory / _TORCHSCRIPT)
    manifest = export.manifest()
    differences = verify_bundle(export.directory, manifest, export.model)
    test = export.measure("test")
    if export.recipe.export.quantization == "int8":
        test = _quantize(export, models, test)
    export.quality += [*export.measure("dev"), *test]
    card = model_card(export.manifest(), differences=differences, references=references)
    (export.directory / _CARD).write_text(card, encoding="utf-8")
    manifest = export.manifest()
    export.write(manifest)
    return Exported(path=export.directory, manifest=manifest, differences=differences)


def _quantize(
    export: _Export, models: Mapping[str, onnx.ModelProto], float32: list[dict[str, object]]
) -> list[dict[str, object]]:
    """Replaces the ONNX graphs by int8 ones, notes what that cost on the test split, returns the new quality."""
    save_graphs({name: quantize_int8(model) for name, model in models.items()}, export.directory)
    int8 = export.measure("test")
    export.quantization = {"kind": "int8-dynamic", **int8[0], "float32_value": float32[0]["value"]}
    return int8
