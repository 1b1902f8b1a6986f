"""Models of true size with random weights, made by the project's own import and export.

There is no task of a causal transformer in the bundle format. Its place takes the text generator (UniLM), whose decoder
steps are those of a causal model of the same size: 12 layers, 768 hidden units, 50,257 tokens, 125 M parameters.
"""

import fcntl
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.support.marian_directory import SENTENCES, write_marian, write_vocabularies
from tests.support.random_classifiers import make_classifier
from training.bundling.bundle import BundleSettings, BundleWriter, Draft
from training.importing.importer import ImportOptions, chosen_importer, write_imported
from training.importing.samples import Samples
from training.importing.source import open_source
from training.recipe.loading import parse_recipe
from training.run import checkpoint
from training.run.directory import Evaluation, Progress, RunDirectory
from training.run.export import TrainedModel
from training.run.session import load_trained, open_task, start_run
from training.tasks.text_generation.quality import METRIC

__all__ = ["BERT", "GENERATOR", "MINILM", "OPUS", "make_models", "source_of"]

MINILM, BERT, OPUS, GENERATOR = "minilm", "bert-base", "opus-mt", "generator-124m"
_DESCRIPTION = "Random weights for benchmarks"
_LABELS = 150
_HELD_OUT = 4
_DEVIATION = 0.04
"""Standard deviation of random weights of classifiers."""


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Sizes of the four models."""

    minilm: Mapping[str, Any]
    bert: Mapping[str, Any]
    opus: Mapping[str, Any]
    opus_vocabulary: int
    opus_end: float
    """Added to the score of the end token: far below 0, outputs are as long as they may be."""
    generator: Mapping[str, int]


_TRUE = _Sizes(
    minilm={"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    | {"vocab_size": 30522, "max_position_embeddings": 512},
    bert={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    | {"vocab_size": 30522, "max_position_embeddings": 512},
    opus={"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
    | {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_layers": 6, "decoder_layers": 6},
    opus_vocabulary=58_101,
    opus_end=-100.0,
    generator={"vocab_size": 50_257, "hidden_size": 768, "inner_size": 3072, "heads": 12, "layers": 12},
)
_SMALL = _Sizes(
    minilm={"num_hidden_layers": 1, "max_position_embeddings": 160},
    bert={"max_position_embeddings": 160},
    opus={"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 96}
    | {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_layers": 1, "decoder_layers": 1},
    opus_vocabulary=420,
    opus_end=4.5,
    generator={"vocab_size": 300, "hidden_size": 32, "inner_size": 64, "heads": 2, "layers": 1},
)


def source_of(directory: Path, name: str) -> Path:
    """Return the directory in Hugging Face's layout that an imported model was made of."""
    return directory / "sources" / name


def make_models(directory: Path, names: Sequence[str], *, small: bool) -> Mapping[str, Exception]:
    """Write `<directory>/models/<name>/1` of each model that is missing, and return the errors of those that failed.

    Processes that call it at the same time wait for each other.
    """
    sizes = _SMALL if small else _TRUE
    makers: Mapping[str, Callable[[], object]] = {
        MINILM: lambda: _classifier(directory, MINILM, sizes.minilm),
        BERT: lambda: _classifier(directory, BERT, sizes.bert),
        OPUS: lambda: _translator(directory, sizes),
        GENERATOR: lambda: _generator(directory, sizes.generator),
    }
    failures: dict[str, Exception] = {}
    (directory / "models").mkdir(parents=True, exist_ok=True)
    with (directory / "making.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names:
            if not (directory / "models" / name / "1" / "manifest.json").exists():
                try:
                    makers[name]()
                except Exception as error:  # the others are measured without it
                    failures[name] = error
    return failures


def _classifier(directory: Path, name: str, sizes: Mapping[str, Any]) -> None:
    source = source_of(directory, name)
    shutil.rmtree(source, ignore_errors=True)
    make_classifier(source, "BertForSequenceClassification", labels=_LABELS, deviation=_DEVIATION, **sizes)
    _import(source, directory, ImportOptions())


def _translator(directory: Path, sizes: _Sizes) -> None:
    source = source_of(directory, OPUS)
    shutil.rmtree(source, ignore_errors=True)
    write_vocabularies(source, sizes.opus_vocabulary)
    write_marian(source, end_bias=sizes.opus_end, **sizes.opus)
    _import(source, directory, ImportOptions(languages="de-en", samples=Samples(SENTENCES, "")))


def _import(source: Path, directory: Path, options: ImportOptions) -> None:
    opened = open_source(str(source))
    settings = BundleSettings(name=source.name, version=1, description=_DESCRIPTION, licence="none", force=True)
    write_imported(chosen_importer(opened)(opened, options), settings, directory / "models")


def _generator(directory: Path, sizes: Mapping[str, int]) -> None:
    """Export an untrained generator, as if a run had ended with it."""
    recipe = parse_recipe(
        {
            "name": GENERATOR,
            "task": "text-generation",
            "data": {"files": {"train": "pairs.tsv", "dev": "dev.tsv", "test": "dev.tsv"}, "max_output_tokens": 48},
            "network": sizes,
            "output_layer": {"kernels": "lin"},
            "export": {"description": _DESCRIPTION, "licence": "none"},
        }
    )
    with tempfile.TemporaryDirectory() as temporary:
        data, run = Path(temporary), RunDirectory(Path(temporary) / "run")
        _write_pairs(data, sizes["vocab_size"])
        start_run(recipe, run, data)
        torch.manual_seed(0)
        task = open_task(recipe, run, data, torch.device("cpu"))
        checkpoint.save(run.best, {"model": task.model.state_dict()})
        untrained = Evaluation(epoch=0, step=0, train_loss=0.0, metric=0.0, seconds=0.0)
        run.write_history(Progress(history=[untrained]))
        settings = BundleSettings(name=GENERATOR, version=1, description=_DESCRIPTION, licence="none", force=True)
        BundleWriter(_Untrained(run, load_trained(run, data, "cpu"), {}, {}), settings).write(directory / "models")


class _Untrained(TrainedModel):
    """The source of a bundle whose quality is not measured, which takes minutes and says nothing of random weights."""

    def measure(self, draft: Draft) -> None:
        draft.quality.append({"metric": METRIC, "value": 0.0, "dataset": "none, random weights", "split": "test"})


def _write_pairs(directory: Path, words: int) -> None:
    """Write pairs of so many made-up words, of which a tokenizer makes its word pieces."""
    generator = random.Random(0)
    letters = "abcdefghijklmnoprstuvwz"
    vocabulary = ["".join(generator.choices(letters, k=6)) for _ in range(words)]
    lines = [f"{' '.join(vocabulary[first : first + 8])}\t{vocabulary[first]}\n" for first in range(0, words, 8)]
    (directory / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    (directory / "dev.tsv").write_text("".join(lines[:_HELD_OUT]), encoding="utf-8")
