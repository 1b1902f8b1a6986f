"""Fixtures of translation: a parallel corpus of numerals, a model trained on it, and its bundle."""

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from tests.fixtures.shared import shared_export, shared_run
from training.bundling.bundle import WrittenBundle
from training.bundling.graphs import ExportGraph
from training.data.corpora import CORPORA
from training.data.corpus import Corpus, CorpusFile, read_tsv
from training.networks.translation_model import TranslationModel
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.loop import Trainer
from training.run.session import load_trained
from training.tasks.translation import TranslationTask
from training.tasks.translation.settings import TranslationRecipe

_GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
_ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_SIZES = {"train": 1500, "dev": 40, "test": 40}


def _pair(generator: random.Random) -> str:
    """`zwei neun null<TAB>two nine zero`: each word's translation depends on where the target has got to."""
    numbers = generator.sample(range(10), generator.randint(2, 5))
    return " ".join(_GERMAN[n] for n in numbers) + "\t" + " ".join(_ENGLISH[n] for n in numbers)


@pytest.fixture(scope="session")
def pairs_corpus(tiny_data_dir: Path) -> Iterator[Corpus]:
    """The corpus `numerals`, registered for the session; its files lie in `tiny_data_dir`."""
    folder, splits = tiny_data_dir / "numerals", {}
    folder.mkdir()
    for seed, (split, size) in enumerate(_SIZES.items()):
        generator = random.Random(seed)
        content = ("\n".join(_pair(generator) for _ in range(size)) + "\n").encode()
        (folder / f"{split}.tsv").write_bytes(content)
        splits[split] = CorpusFile(name=f"{split}.tsv", checksums=(f"sha256:{hashlib.sha256(content).hexdigest()}",))
    corpus = Corpus(
        name="numerals",
        folder="numerals",
        description="numerals, word by word",
        homepage="https://example.org/numerals",
        licence="CC0",
        release_allowed=True,
        columns=("de", "en"),
        splits=splits,
        reader=read_tsv,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CORPORA, corpus.name, corpus)
        yield corpus


PAIRS_RECIPE: dict[str, Any] = {
    "name": "numerals",
    "task": "translation",
    "data": {"corpus": "numerals", "source": "de", "target": "en", "vocab_size": 330, "batch_tokens": 256},
    "network": {
        "hidden_size": 32,
        "inner_size": 64,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0.0,
    },
    "output_layer": {"kernels": "pow"},
    "loop": {
        "epochs": 11,
        "learning_rate": 1e-2,
        "adam_beta2": 0.98,
        "schedule": "inverse-sqrt",
        "warmup_steps": 30,
        "average": 4,
        "snapshot_steps": 5,
        "patience": 11,
        "precision": "float32",
    },
    "export": {"description": "Translates numerals", "licence": "Apache-2.0", "max_tokens": 50, "torchscript": True},
}
"""Learnt in some seconds, word by word; see `pairs_recipe`."""


@pytest.fixture(scope="session")
def pairs_recipe(pairs_corpus: Corpus) -> TranslationRecipe:
    """A small Transformer on the corpus `numerals`."""
    recipe = parse_recipe(PAIRS_RECIPE)
    assert isinstance(recipe, TranslationRecipe)
    return recipe


MakePairsTrainer = Callable[..., Trainer]


@pytest.fixture(scope="session")
def train_pairs(pairs_recipe: TranslationRecipe, tiny_data_dir: Path) -> MakePairsTrainer:
    """A trainer of `pairs_recipe` in a directory, with other fields of its sections and another seed."""

    def make(directory: Path, *, seed: int = 1, **sections: dict[str, Any]) -> Trainer:
        content = pairs_recipe.model_dump()
        for section, fields in sections.items():
            content[section] = (content[section] or {}) | fields
        recipe = parse_recipe(content)
        assert isinstance(recipe, TranslationRecipe)
        run = RunDirectory(directory)
        run.start(recipe)
        tokenizer = TranslationTask.build_tokenizer(recipe, tiny_data_dir)
        tokenizer.save(run.tokenizer)
        torch.manual_seed(seed)
        return Trainer(TranslationTask(recipe, tokenizer, tiny_data_dir, torch.device("cpu")), run, recipe.loop)

    return make


@pytest.fixture(scope="session")
def pairs_run(train_pairs: MakePairsTrainer, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The run directory of `pairs_recipe`, trained to the end."""
    return shared_run(tmp_path_factory, "numerals", lambda run: train_pairs(run.path).fit(lambda line: None))


@pytest.fixture(scope="session")
def pairs_model(pairs_run: RunDirectory) -> TranslationModel:
    """The best checkpoint of `pairs_run`, ready to run; not to be changed."""
    task = load_trained(pairs_run, device="cpu")
    assert isinstance(task, TranslationTask)
    return task.model


@pytest.fixture(scope="session")
def pairs_export(
    pairs_run: RunDirectory,
    tiny_data_dir: Path,
    traced_once: Callable[[ExportGraph], onnx.ModelProto],
    tmp_path_factory: pytest.TempPathFactory,
) -> WrittenBundle:
    """The export of `pairs_run`, with ONNX and TorchScript; its files are not to be changed."""
    return shared_export(tmp_path_factory, "numerals-export", pairs_run, tiny_data_dir, {"copy": 1.5})
