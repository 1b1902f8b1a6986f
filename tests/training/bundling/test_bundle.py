"""Tests of exporting a run: content of the bundle, its quality, and failures."""

import dataclasses
import datetime
import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import yaml

from models.bundle.manifest import MANIFEST
from models.reading import read_manifest, sha256_of, validate
from models.store import load_bundle
from models.tasks.language_model import LanguageModel
from models.text.tokenization import WordTokenizer
from tests.fixtures.bundled import NEXT_WORD, NEXT_WORD_VERSION
from training.bundling.bundle import WrittenBundle, add_device_graphs
from training.bundling.verify import ExportError
from training.data.corpora import CORPORA
from training.data.corpus import Corpus
from training.recipe import Recipe
from training.recipe.loading import parse_recipe
from training.run import checkpoint
from training.run.directory import RunDirectory
from training.run.export import export_run
from training.run.session import load_trained
from training.tasks.language_model import LanguageModelTask
from training.tasks.language_model.perplexity import bundle_perplexity
from training.tasks.language_model.reading import split_texts

# torch deprecates TorchScript; it stays a backend because users asked for it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning"),
    pytest.mark.usefixtures("traced_once"),
]
FILES = {"next_words.onnx", "score.onnx", "weights.bin", "tokenizer.json", MANIFEST, "MODEL_CARD.md"}


@pytest.fixture(scope="module")
def model(tiny_bundle: Path) -> LanguageModel:
    return load_bundle(tiny_bundle, threads=1)


def _run_like(run: RunDirectory, path: Path, **export: Any) -> RunDirectory:
    """A copy of a run with other export settings."""
    copied = RunDirectory(Path(shutil.copytree(run.path, path)))
    recipe = copied.recipe()
    changed = recipe.model_copy(update={"export": recipe.export.model_copy(update=export)})
    (path / "recipe.yaml").write_text(yaml.safe_dump(changed.model_dump()), encoding="utf-8")
    return copied


@pytest.fixture
def plain_run(tiny_run: RunDirectory, tmp_path: Path) -> RunDirectory:
    """`tiny_run` without TorchScript, which exports faster."""
    return _run_like(tiny_run, tmp_path / "plain-run", torchscript=False)


# ---- content of a bundle ----------------------------------------------------------------------------------


def test_a_bundle_is_complete_and_sound(tiny_bundle: Path) -> None:
    assert {file.name for file in tiny_bundle.iterdir()} == FILES | {"language_model.pt"}
    assert validate(tiny_bundle) == []
    assert tiny_bundle.parts[-2:] == ("toy", "1")
    assert [path.name for path in tiny_bundle.parent.iterdir()] == ["1"]


def test_the_manifest_on_disk_is_the_one_returned(tiny_export: WrittenBundle) -> None:
    assert read_manifest(tiny_export.path) == tiny_export.manifest
    files = {file.name: sha256_of(file) for file in tiny_export.path.iterdir() if file.name != MANIFEST}
    assert tiny_export.manifest.files == files


def test_the_manifest_says_what_the_recipe_said(
    tiny_export: WrittenBundle, tiny_recipe: Recipe, tiny_run: RunDirectory
) -> None:
    manifest, tokenizer = tiny_export.manifest, WordTokenizer.from_file(tiny_run.tokenizer)
    assert (manifest.name, manifest.version, manifest.task) == ("toy", 1, "language-model")
    assert (manifest.description, manifest.licence) == ("Says what animals do", "Apache-2.0")
    kernels = [(kernel.name, kernel.hyperparameters) for kernel in manifest.softmax.kernels]
    assert kernels == [("lin", {}), ("pow", {"p": 2.0})]
    assert (manifest.config.network.num_layers, manifest.config.network.hidden_size) == (2, 32)
    assert manifest.config.vocab_size == tokenizer.vocab_size
    assert (manifest.config.special_tokens.unknown, manifest.config.special_tokens.end) == (
        tokenizer.unknown_id,
        tokenizer.end_id,
    )
    assert manifest.config.limits.max_tokens == 200
    assert manifest.quantization is None
    assert parse_recipe(manifest.provenance.recipe) == tiny_recipe


def test_the_manifest_says_where_the_model_comes_from(tiny_export: WrittenBundle, tiny_run: RunDirectory) -> None:
    provenance = tiny_export.manifest.provenance
    assert provenance.git_revision == tiny_run.provenance()["git_revision"]
    assert provenance.training_seconds == pytest.approx(tiny_run.training_seconds(), abs=0.05)
    today = datetime.datetime.now(datetime.UTC).date()
    assert today - datetime.date.fromisoformat(provenance.date) <= datetime.timedelta(days=1)
    source = provenance.data[0]
    assert (source.name, source.homepage, source.licence) == ("toy", "https://example.org/toy", "CC0")


def test_own_files_have_no_homepage() -> None:
    data = {"files": {"train": "mine/pairs.tsv"}, "source": "de", "target": "en"}
    recipe = parse_recipe({"name": "own", "task": "translation", "data": data})
    assert recipe.sources() == [{"name": "pairs.tsv", "homepage": "user's own files", "licence": "user's own files"}]


def test_every_graph_has_a_file_for_both_backends(tiny_export: WrittenBundle) -> None:
    graphs = tiny_export.manifest.graphs
    assert {name: (graph.onnx, graph.torchscript) for name, graph in graphs.items()} == {
        "next_words": ("next_words.onnx", "language_model.pt"),
        "score": ("score.onnx", "language_model.pt"),
    }
    assert list(tiny_export.differences) == ["onnx", "torchscript"]


def test_the_card_holds_quality_and_references(tiny_export: WrittenBundle) -> None:
    card = (tiny_export.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    for quality in tiny_export.manifest.quality:
        assert f"| this model | toy | {quality.split} | {quality.value:.2f} |" in card
    assert "| unigrams | toy | test | 21.50 |" in card


# ---- quality -------------------------------------------------------------------------------------


def test_a_bundle_speaks_the_toy_grammar(model: LanguageModel) -> None:
    """Nouns have an s after `two` and none after `one`."""
    two, one = model.next_words(["Two", "One"], 10)
    assert all(word.word.endswith("s") for word in two.words)
    assert not any(word.word.endswith("s") for word in one.words)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_quality_is_the_task_s_own_perplexity(
    split: str, model: LanguageModel, tiny_export: WrittenBundle, tiny_run: RunDirectory, tiny_data_dir: Path
) -> None:
    recipe = tiny_run.recipe()
    task = LanguageModelTask(recipe, WordTokenizer.from_file(tiny_run.tokenizer), tiny_data_dir, torch.device("cpu"))
    task.model.load_state_dict(checkpoint.load(tiny_run.best, task.device)["model"])
    trained = task.evaluate(task.batches(split))
    served = bundle_perplexity(model, split_texts(recipe.data, split, tiny_data_dir))
    assert served.num_tokens == trained.num_tokens
    assert served.value == pytest.approx(trained.value, rel=1e-3)
    (stated,) = (quality for quality in tiny_export.manifest.quality if quality.split == split)
    assert (stated.metric, stated.dataset) == ("perplexity", "toy")
    assert stated.value == pytest.approx(trained.value, rel=1e-3)


def test_bundle_perplexity_counts_the_ends_of_sentences(model: LanguageModel) -> None:
    """`One cat.` and nothing: 3 words and 2 ends."""
    result = bundle_perplexity(model, ["One cat.", ""])
    assert result.num_tokens == 5
    assert result.log_probability == pytest.approx(sum(s.log_probability for s in model.score(["One cat.", ""])))


# ---- other settings ---------------------------------------------------------------------------------------


def test_without_torchscript_there_is_no_such_file(
    plain_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a relative directory that is not there yet, as on the command line."""
    monkeypatch.chdir(tmp_path)
    exported = export_run(plain_run, Path("new/models"), tiny_data_dir)
    assert exported.path == Path("new/models/toy/1")
    assert {file.name for file in exported.path.iterdir()} == FILES
    assert validate(exported.path) == []
    assert list(exported.differences) == ["onnx"]
    assert all(graph.torchscript is None for graph in exported.manifest.graphs.values())


def test_int8_is_smaller_and_says_what_it_cost(
    tiny_run: RunDirectory, tiny_export: WrittenBundle, tiny_data_dir: Path, tmp_path: Path
) -> None:
    run = _run_like(tiny_run, tmp_path / "run", torchscript=False, quantization="int8", version=2)
    exported = export_run(run, tmp_path / "models", tiny_data_dir)
    lossy, (_, exact) = exported.manifest.quantization, tiny_export.manifest.quality
    assert lossy is not None
    assert (lossy.kind, lossy.metric, lossy.dataset, lossy.split) == ("int8-weights", "perplexity", "toy", "test")
    assert lossy.float32_value == pytest.approx(exact.value, rel=1e-3)
    assert lossy.value == pytest.approx(lossy.float32_value, rel=0.3)
    measured = {quality.split: quality.value for quality in exported.manifest.quality}
    assert measured["test"] == lossy.value
    card = (exported.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"int8 (perplexity {lossy.value:.2f} against {lossy.float32_value:.2f} in float32)" in card
    assert validate(exported.path) == []
    texts = split_texts(run.recipe().data, "test", tiny_data_dir)
    bundles = [load_bundle(path, threads=1) for path in (exported.path, tiny_export.path)]
    rounded, whole = (bundle_perplexity(bundle, texts).value for bundle in bundles)
    assert whole != rounded == pytest.approx(lossy.value, rel=1e-3)
    sizes = [(path / "weights.bin").stat().st_size for path in (exported.path, tiny_export.path)]
    assert sizes[0] < sizes[1]


def test_int4_of_other_tasks_is_refused(tiny_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path) -> None:
    run = _run_like(tiny_run, tmp_path / "run", torchscript=False, quantization="int4", version=2)
    message = "of language-model are exported in float32 or int8; int4 is for causal language models"
    with pytest.raises(ExportError, match=message):
        export_run(run, tmp_path / "models", tiny_data_dir)
    assert not (tmp_path / "models").exists()


# ---- graphs for GPUs --------------------------------------------------------------------------------------


def test_int8_weights_need_no_graphs_for_gpus(sparse_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path) -> None:
    """They are multiplied out when a graph is loaded, so that all products are of float32."""
    run = _run_like(sparse_run, tmp_path / "run", torchscript=False, quantization="int8", version=3)
    exported = export_run(run, tmp_path / "models", tiny_data_dir)
    assert [graph.devices for graph in exported.manifest.graphs.values()] == [{}, {}]
    assert validate(exported.path) == []


@pytest.fixture
def without_device_graphs(tmp_path: Path) -> Path:
    """The bundled `intents` as it was before it had a graph for GPUs."""
    bundle = Path(shutil.copytree(NEXT_WORD.parents[1] / "intents" / "2", tmp_path / "intents" / "2"))
    (bundle / "classify.cuda.onnx").unlink()
    content = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    content["graphs"]["classify"]["devices"] = {}
    del content["files"]["classify.cuda.onnx"]
    (bundle / MANIFEST).write_text(json.dumps(content), encoding="utf-8")
    return bundle


@pytest.mark.parametrize("float16", [True, False])
def test_graphs_for_gpus_are_added_to_a_bundle(float16: bool, without_device_graphs: Path) -> None:
    bundle, bundled = without_device_graphs, NEXT_WORD.parents[1] / "intents" / "2"
    before = _contents(bundle)
    assert add_device_graphs(bundle, float16=float16) == ["classify.cuda.onnx"]
    assert validate(bundle) == []
    after = _contents(bundle)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"classify.cuda.onnx", MANIFEST}
    assert (read_manifest(bundle) == read_manifest(bundled)) is float16, "the bundled model has float16 products"


def test_graphs_for_gpus_that_do_not_load_change_nothing(
    without_device_graphs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _contents(without_device_graphs.parent)
    monkeypatch.setattr("training.bundling.bundle.OnnxBackend", _fails)
    with pytest.raises(ExportError, match="does not load"):
        add_device_graphs(without_device_graphs)
    assert _contents(without_device_graphs.parent) == before


def _fails(*arguments: object, **options: object) -> None:
    raise ExportError("does not load")


def test_graphs_for_gpus_that_are_not_needed_any_more_are_removed(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "toy" / "1"))
    assert add_device_graphs(bundle, float16=True)
    assert add_device_graphs(bundle) == []
    assert _contents(bundle).keys() == _contents(tiny_bundle).keys()
    assert validate(bundle) == []


def test_a_bundle_that_needs_none_stays_as_it_is(tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(NEXT_WORD, tmp_path / "next-word" / NEXT_WORD_VERSION))
    assert add_device_graphs(bundle) == []
    assert _contents(bundle) == _contents(NEXT_WORD)


# ---- versions and failures --------------------------------------------------------------------------------


def _contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def models_dir(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A model directory that holds version 1."""
    shutil.copytree(tiny_bundle, tmp_path / "models" / "toy" / "1")
    return tmp_path / "models"


def test_quality_on_another_corpus_has_a_row_of_its_own(
    tiny_run: RunDirectory, tiny_data_dir: Path, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the other one's test split is the first one's training split."""
    other = dataclasses.replace(tiny_corpus, name="other", splits={"test": tiny_corpus.splits["train"]})
    monkeypatch.setitem(CORPORA, "other", other)
    run = _run_like(tiny_run, tmp_path / "run", torchscript=False, also_test_on=["other"])
    exported = export_run(run, tmp_path / "models", tiny_data_dir)
    quality = {(each.dataset, each.split): each.value for each in exported.manifest.quality}
    assert list(quality) == [("toy", "dev"), ("toy", "test"), ("other", "test")]
    texts = split_texts(run.recipe().data, "train", tiny_data_dir)
    measured = bundle_perplexity(load_bundle(exported.path), texts).value
    assert quality["other", "test"] == pytest.approx(measured, abs=1e-4)
    card = (exported.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"| this model | other | test | {measured:.2f} |" in card


def test_a_corpus_that_is_unknown_is_refused_before_anything_is_done(
    tiny_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path
) -> None:
    run = _run_like(tiny_run, tmp_path / "run", also_test_on=["nope"])
    with pytest.raises(ValueError, match="'nope'"):
        export_run(run, tmp_path / "models", tiny_data_dir)
    assert not (tmp_path / "models").exists()


def test_a_version_that_exists_is_refused(plain_run: RunDirectory, tiny_data_dir: Path, models_dir: Path) -> None:
    before, start = _contents(models_dir), time.monotonic()
    with pytest.raises(FileExistsError, match=r"toy/1 exists; raise export\.version in the recipe, or use --force"):
        export_run(plain_run, models_dir, tiny_data_dir)
    assert time.monotonic() - start < 0.5  # before the work, not after
    assert _contents(models_dir) == before


def test_force_replaces_a_version(plain_run: RunDirectory, tiny_data_dir: Path, models_dir: Path) -> None:
    exported = export_run(plain_run, models_dir, tiny_data_dir, force=True)
    assert {file.name for file in exported.path.iterdir()} == FILES  # language_model.pt went with the old one
    assert validate(exported.path) == []
    assert [path.name for path in (models_dir / "toy").iterdir()] == ["1"]


@pytest.mark.parametrize("force", [False, True])
def test_a_failed_export_leaves_nothing(
    force: bool, plain_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.bundling.verify.TOLERANCE", -1.0)
    (tmp_path / "models").mkdir()
    with pytest.raises(ExportError):
        export_run(plain_run, tmp_path / "models", tiny_data_dir, force=force)
    assert list((tmp_path / "models").rglob("*")) == []


def test_a_failed_export_keeps_the_version_it_was_to_replace(
    plain_run: RunDirectory, tiny_data_dir: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _contents(models_dir)
    monkeypatch.setattr("training.bundling.verify.TOLERANCE", -1.0)
    with pytest.raises(ExportError):
        export_run(plain_run, models_dir, tiny_data_dir, force=True)
    assert _contents(models_dir) == before
    assert [path.name for path in (models_dir / "toy").iterdir()] == ["1"]


def test_a_run_without_a_checkpoint_cannot_be_exported(
    plain_run: RunDirectory, tiny_data_dir: Path, tmp_path: Path
) -> None:
    plain_run.best.unlink()
    with pytest.raises(FileNotFoundError, match=r"has no best\.pt"):
        export_run(plain_run, tmp_path / "models", tiny_data_dir)


def test_graphs_and_weights_are_valid_onnx(tiny_bundle: Path) -> None:
    for name in ("next_words", "score"):
        onnx.checker.check_model(str(tiny_bundle / f"{name}.onnx"))


# ---- sparse and untied layers -----------------------------------------------------------------------------


def test_a_sparse_bundle_says_what_its_layer_is(sparse_export: WrittenBundle) -> None:
    softmax = sparse_export.manifest.softmax
    assert ([kernel.name for kernel in softmax.kernels], softmax.sparse_k, softmax.untied) == (["lin", "pow"], 4, 2)
    assert validate(sparse_export.path) == []
    assert read_manifest(sparse_export.path) == sparse_export.manifest
    assert list(sparse_export.differences) == ["onnx", "torchscript"]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_quality_of_a_sparse_bundle_is_coverage(
    split: str, sparse_export: WrittenBundle, sparse_run: RunDirectory, tiny_data_dir: Path
) -> None:
    """And the perplexity of covered tokens; the same numbers as those of the run. That of all tokens is infinite."""
    task = load_trained(sparse_run, tiny_data_dir, "cpu")
    trained = task.evaluate(task.batches(split), sparse=True)
    served = bundle_perplexity(
        load_bundle(sparse_export.path, threads=1), split_texts(task.recipe.data, split, tiny_data_dir)
    )
    assert served.value == trained.value == math.inf
    assert 0 < served.num_impossible == trained.num_impossible < served.num_tokens == trained.num_tokens
    stated = {quality.metric: quality.value for quality in sparse_export.manifest.quality if quality.split == split}
    assert stated == {
        "coverage": pytest.approx(trained.coverage, abs=1e-4),
        "perplexity_of_covered": pytest.approx(trained.of_possible, rel=1e-3),
    }


def test_a_tied_bundle_says_so(tiny_export: WrittenBundle) -> None:
    assert (tiny_export.manifest.softmax.sparse_k, tiny_export.manifest.softmax.untied) == (None, None)
    assert [quality.metric for quality in tiny_export.manifest.quality] == ["perplexity"] * 2


def test_int8_of_a_sparse_bundle_says_what_it_cost(
    sparse_run: RunDirectory, sparse_export: WrittenBundle, tiny_data_dir: Path, tmp_path: Path
) -> None:
    run = _run_like(sparse_run, tmp_path / "run", torchscript=False, quantization="int8", version=2)
    manifest = export_run(run, tmp_path / "models", tiny_data_dir).manifest
    exact = {(each.metric, each.split): each.value for each in sparse_export.manifest.quality}
    assert manifest.quantization is not None
    assert manifest.quantization.metric == "coverage"
    assert manifest.quantization.float32_value == exact["coverage", "test"]
    assert manifest.quantization.value == pytest.approx(exact["coverage", "test"], abs=0.2)
    assert {(each.metric, each.split) for each in manifest.quality} == exact.keys()
