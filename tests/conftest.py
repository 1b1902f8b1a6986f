"""Fixtures shared by all tests: a corpus of a toy grammar, a model trained on it, and its bundle."""

import hashlib
import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
import torch
from hypothesis import HealthCheck, settings
from torch.nn import functional

from models.reading import sha256_of
from models.store import load_bundle
from models.text.tokenization import WordTokenizer
from tests.fixtures.shared import shared_directory, shared_export, shared_run
from training import checkpoint
from training.checkpoint import RunDirectory
from training.data.corpora import CORPORA
from training.data.corpus import Corpus, CorpusFile
from training.data.tokenization import build_subword_tokenizer
from training.export.bundle import Exported
from training.export.graphs import ExportGraph
from training.export.onnx import save_graphs, to_onnx
from training.export.torchscript import save_torchscript
from training.loop import Trainer
from training.networks.language_model import RecurrentLanguageModel
from training.networks.translation_model import TranslationModel
from training.recipe import Recipe, parse_recipe
from training.tasks.language_model import LanguageModelTask
from training.tasks.language_model.task import build_model
from training.tasks.translation.graphs import translation_graphs
from training.tasks.translation.settings import TranslationRecipe
from training.tasks.translation.task import build_model as build_translator

pytest_plugins = ["tests.fixtures.classification", "tests.fixtures.generation", "tests.fixtures.images"]

torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
# pytest listens to every logger; torch's trace log would slow exports down and fill the report of a failed test.
logging.getLogger("torch.__trace").disabled = True
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

_NOUNS = ["ape", "bat", "cat", "cow", "dog", "elk", "fox", "gnu", "hen", "jay", "kid", "owl", "ox", "pig", "rat", "sow"]
_VERBS = ["bite", "call", "draw", "fear", "greet", "hear", "know", "like"]
_SIZES = {"train": 600, "dev": 60, "test": 60}


def _toy_sentence(generator: random.Random) -> str:
    """`Two cats draw one fox now.`: the verb follows from the subject and its number, the object from the subject."""
    subject, many = generator.randrange(16), generator.random() < 0.5
    object_, several = (4 * (subject // 4) + 4 + generator.randrange(4)) % 16, generator.random() < 0.5
    words = [
        *(["Two", f"{_NOUNS[subject]}s"] if many else ["One", _NOUNS[subject]]),
        _VERBS[subject // 2] + ("" if many else "s"),
        *(["two", f"{_NOUNS[object_]}s"] if several else ["one", _NOUNS[object_]]),
        *(["now"] if generator.random() < 0.5 else []),
    ]
    return " ".join(words) + "."


@pytest.fixture(scope="session")
def tiny_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that holds `toy/{train,dev,test}.txt`; each split has words below the recipe's `min_count`."""
    directory = tmp_path_factory.mktemp("data")
    (directory / "toy").mkdir()
    for seed, (split, size) in enumerate(_SIZES.items()):
        generator = random.Random(seed)
        lines = [_toy_sentence(generator) for _ in range(size)] + ["One yak sleeps."]
        (directory / "toy" / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory


@pytest.fixture(scope="session")
def tiny_corpus(tiny_data_dir: Path) -> Iterator[Corpus]:
    """The corpus `toy`, registered for the session; its files lie in `tiny_data_dir`."""
    contents = {split: (tiny_data_dir / "toy" / f"{split}.txt").read_bytes() for split in _SIZES}
    corpus = Corpus(
        name="toy",
        folder="toy",
        description="sentences of a toy grammar",
        homepage="https://example.org/toy",
        licence="CC0",
        release_allowed=True,
        columns=("text",),
        splits={
            split: CorpusFile(name=f"{split}.txt", checksums=(f"sha256:{hashlib.sha256(content).hexdigest()}",))
            for split, content in contents.items()
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CORPORA, corpus.name, corpus)
        yield corpus


@pytest.fixture(scope="session")
def tiny_recipe(tiny_corpus: Corpus) -> Recipe:
    """A mixture of two kernels on the toy corpus, learnt in some seconds."""
    return parse_recipe(
        {
            "name": "toy",
            "task": "language-model",
            "data": {"corpus": tiny_corpus.name, "min_count": 2, "batch_tokens": 128},
            "network": {"hidden_size": 32, "num_layers": 2, "dropout": 0.1},
            "output_layer": {"kernels": "lin, pow", "variance_penalty": 0.1},
            "loop": {"epochs": 24, "learning_rate": 3e-2, "warmup_steps": 20, "precision": "float32"},
            "export": {
                "description": "Says what animals do",
                "licence": "Apache-2.0",
                "max_tokens": 200,
                "torchscript": True,
            },
        }
    )


def _train(recipe: Recipe, data_dir: Path, run: RunDirectory) -> None:
    """Train a recipe to the end."""
    run.start(recipe)
    tokenizer = LanguageModelTask.build_tokenizer(recipe, data_dir)
    tokenizer.save(run.tokenizer)
    torch.manual_seed(recipe.seed)
    task = LanguageModelTask(recipe, tokenizer, data_dir, torch.device("cpu"))
    Trainer(task, run, recipe.loop).fit(lambda line: None)


@pytest.fixture(scope="session")
def tiny_run(tiny_recipe: Recipe, tiny_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The run directory of `tiny_recipe`, trained to the end."""
    return shared_run(tmp_path_factory, "toy", lambda run: _train(tiny_recipe, tiny_data_dir, run))


@pytest.fixture(scope="session")
def sparse_run(tiny_recipe: Recipe, tiny_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """As `tiny_run`, but each of two kernels keeps 4 words and has a projection matrix corrected at rank 2."""
    content = tiny_recipe.model_dump()
    content["output_layer"] |= {"kernels": "lin, pow", "untied": 2, "sparse_k": 4}
    content["loop"]["epochs"] = 3
    recipe = parse_recipe({**content, "name": "sparse-toy"})
    return shared_run(tmp_path_factory, "sparse-toy", lambda run: _train(recipe, tiny_data_dir, run))


@pytest.fixture(scope="session")
def tiny_model(tiny_run: RunDirectory) -> RecurrentLanguageModel:
    """The best checkpoint of `tiny_run`, ready to run; not to be changed."""
    tokenizer = WordTokenizer.from_file(tiny_run.tokenizer)
    model = build_model(tiny_run.recipe(), tokenizer.vocab_size)
    model.load_state_dict(checkpoint.load(tiny_run.best, torch.device("cpu"))["model"])
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="session")
def traced_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[ExportGraph], onnx.ModelProto]]:
    """`to_onnx` that traces equal graphs once a test run (tracing is the slow part), also within `export_run`."""

    def cached(graph: ExportGraph) -> onnx.ModelProto:
        key = hashlib.sha256(f"{graph.module!r}{graph.contract.model_dump_json()}".encode())
        for tensor in graph.module.state_dict().values():
            key.update(tensor.numpy().tobytes())
        directory = shared_directory(
            tmp_path_factory,
            f"traced-{key.hexdigest()}",
            lambda directory: (directory / "graph.onnx").write_bytes(to_onnx(graph).SerializeToString()),
        )
        return onnx.ModelProto.FromString((directory / "graph.onnx").read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.export.bundle.to_onnx", cached)
        yield cached


@pytest.fixture(scope="session")
def tiny_export(
    tiny_run: RunDirectory,
    tiny_data_dir: Path,
    traced_once: Callable[[ExportGraph], onnx.ModelProto],
    tmp_path_factory: pytest.TempPathFactory,
) -> Exported:
    """The export of `tiny_run`, with ONNX and TorchScript; its files are not to be changed."""
    return shared_export(tmp_path_factory, "toy-export", tiny_run, tiny_data_dir, {"unigrams": 21.5})


@pytest.fixture(scope="session")
def sparse_export(sparse_run: RunDirectory, tiny_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The export of `sparse_run`, with ONNX and TorchScript; its files are not to be changed."""
    return shared_export(tmp_path_factory, "sparse-toy-export", sparse_run, tiny_data_dir, {"unigrams": 21.5})


@pytest.fixture(scope="session")
def sparse_sentence(sparse_export: Exported) -> str:
    """What the model of `sparse_export` says itself, taking the most probable word each time."""
    model, words = load_bundle(sparse_export.path, threads=1), [""]
    while words[-1] != "</s>" and len(words) < 12:
        words.append(model.next_words([" ".join(words)], 1)[0].words[0].word)
    return " ".join(words[1:]).removesuffix(" </s>")


@pytest.fixture(scope="session")
def tiny_bundle(tiny_export: Exported) -> Path:
    """The bundle of `tiny_export`: `<models>/toy/1`."""
    return tiny_export.path


_BABBLER = {
    "name": "babbler",
    "task": "translation",
    "data": {"corpus": "none", "source": "de", "target": "en", "vocab_size": 270},
    "network": {"hidden_size": 16, "inner_size": 48, "heads": 2, "encoder_layers": 1, "decoder_layers": 2},
}


@pytest.fixture(scope="session")
def babbler() -> TranslationModel:
    """A translation model that was never trained: it babbles for a while, and what depends on the source.

    Not to be changed.
    """
    recipe = parse_recipe(_BABBLER)
    assert isinstance(recipe, TranslationRecipe)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = build_translator(recipe, recipe.data.vocab_size).eval().requires_grad_(False)
    # Next tokens that depend on source and prefix, peaked so that rounding does not change who is best, and an end
    # (id 1) that comes now and then.
    layer, network = model.output_layer, model.network
    functional.normalize(layer.weight, dim=1, out=layer.weight)
    for block in network.decoder_layers():
        block.feed_forward.outer.weight *= 10
        block.self_attention.output.weight *= 3
        block.cross_attention.output.weight *= 3
    network.decoder_norm.weight *= 3
    network.decoder_norm.bias += 8.4 * layer.weight[1]
    return model


@pytest.fixture(scope="session")
def babbler_bundle(
    babbler: TranslationModel,
    traced_once: Callable[[ExportGraph], onnx.ModelProto],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The bundle `<models>/babbler/1` of `babbler`, alone in its model directory, with ONNX and TorchScript."""
    shared = shared_directory(
        tmp_path_factory, "babbler-bundle", lambda directory: _write_babbler(babbler, traced_once, directory)
    )
    return shared / "babbler" / "1"


def _write_babbler(
    babbler: TranslationModel, traced_once: Callable[[ExportGraph], onnx.ModelProto], directory: Path
) -> None:
    path = directory / "babbler" / "1"
    path.mkdir(parents=True)
    tokenizer = build_subword_tokenizer(["der die das und in zu den"], vocab_size=babbler.output_layer.weight.shape[0])
    tokenizer.save(path / "tokenizer.json")
    graphs = translation_graphs(babbler)
    save_graphs({name: traced_once(graph) for name, graph in graphs.items()}, path)
    save_torchscript(graphs, path / "model.pt")
    content = {
        "format_version": 1,
        "task": "translation",
        "name": "babbler",
        "version": 1,
        "description": "Babbles",
        "licence": "CC0",
        "softmax": {"kernels": [{"name": "lin"}]},
        "network": {"kind": "transformer", "norm": "pre", **_BABBLER["network"]},
        "languages": {"source": "de", "target": "en"},
        "graphs": {
            name: {**graph.contract.model_dump(), "onnx": f"{name}.onnx", "torchscript": "model.pt"}
            for name, graph in graphs.items()
        },
        "tokenizer": "tokenizer.json",
        "vocab_size": tokenizer.vocab_size,
        "special_tokens": {"unknown": tokenizer.unknown_id, "end": tokenizer.end_id},
        "limits": {"max_tokens": 600},
        "quality": [],
        "provenance": {"recipe": {}, "git_revision": "", "data": [], "date": "2024-01-01", "training_seconds": 0},
        "files": {file.name: sha256_of(file) for file in path.iterdir()},
    }
    (path / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
