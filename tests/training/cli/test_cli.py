"""Tests of `softserve-train`, end to end on the toy corpus and in this process."""

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from models.reading import read_manifest, validate
from training.bundling.bundle import WrittenBundle
from training.cli import main
from training.data.corpora import CORPORA
from training.data.corpus import Corpus, Source
from training.run.directory import RunDirectory

RECIPE: dict[str, Any] = {
    "name": "little",
    "task": "language-model",
    "data": {"corpus": "toy", "min_count": 2, "batch_tokens": 128, "limit": 150},
    "network": {"hidden_size": 16, "num_layers": 1, "dropout": 0.1},
    "loop": {"epochs": 2, "learning_rate": 2e-2, "warmup_steps": 5, "precision": "float32"},
    "export": {"torchscript": False, "licence": "Apache-2.0", "max_tokens": 100},
}


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: Any
    output: str
    """The output, in one line."""


def run_cli(*arguments: object) -> Result:
    """`softserve-train` with those arguments; what `main` does not catch fails the test."""
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        patch.setattr(sys, "argv", ["softserve-train", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    return Result(ended.value.code, " ".join(output.getvalue().split()))


def _written(path: Path, **changes: Any) -> Path:
    path.write_text(yaml.safe_dump({**RECIPE, **changes}), encoding="utf-8")
    return path


Train = Callable[..., Result]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return _written(tmp_path / "recipe.yaml")


@pytest.fixture
def train(tiny_corpus: Corpus, tiny_data_dir: Path, tmp_path: Path) -> Train:
    """`softserve-train run` into `tmp_path/runs`."""

    def run(recipe: Path, *flags: object) -> Result:
        return run_cli("run", recipe, "--data-dir", tiny_data_dir, "--runs", tmp_path / "runs", *flags)

    return run


@pytest.fixture(scope="module")
def trained(tiny_corpus: Corpus, tiny_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A run directory and what training it said; not to be changed."""
    directory = tmp_path_factory.mktemp("cli")
    recipe = _written(directory / "recipe.yaml")
    return directory / "little", run_cli("run", recipe, "--data-dir", tiny_data_dir, "--runs", directory)


@pytest.fixture(scope="module")
def exported(
    trained: tuple[Path, Result],
    tiny_data_dir: Path,
    traced_once: object,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Result]:
    """The bundle of `trained` and what exporting it said; not to be changed."""
    output = tmp_path_factory.mktemp("cli-models")
    reference = ("--reference", "Kneser-Ney 5-gram=12.5")
    result = run_cli("export", trained[0], "--output", output, "--data-dir", tiny_data_dir, *reference)
    return output / "little" / "1", result


def _perplexity(result: Result) -> float:
    match = re.search(r"perplexity (\S+), log-probability", result.output)
    assert match is not None
    return float(match[1])


# ---- train, evaluate, export ------------------------------------------------------------------------------


def test_run_trains_and_says_so(trained: tuple[Path, Result]) -> None:
    directory, result = trained
    history = json.loads((directory / "history.json").read_text(encoding="utf-8"))
    assert result.code == 0
    assert re.search(r"little: 0\.\d\dM parameters, \d\d tokens; cpu, float32", result.output)
    assert "epoch 1: train loss" in result.output
    assert "epoch 2: train loss" in result.output
    best = min(history, key=lambda evaluation: evaluation["metric"])
    assert f"best dev perplexity {best['metric']:.3f} after epoch {best['epoch']}" in result.output
    files = {
        "recipe.yaml",
        "provenance.json",
        "tokenizer.json",
        "history.json",
        "last.pt",
        "best.pt",
        "best.safetensors",
    }
    assert files <= {file.name for file in directory.iterdir()}


def test_export_writes_a_sound_bundle(exported: tuple[Path, Result]) -> None:
    path, result = exported
    assert result.code == 0
    assert validate(path) == []
    assert f"wrote {path}" in result.output
    assert "onnx: largest difference from eager " in result.output
    for quality in read_manifest(path).quality:
        assert f"perplexity on toy, {quality.split}: {quality.value:.3f}" in result.output
    assert re.search(r"(int8 is suggested|float32 is the better choice): .*perplexity [\d.]+ instead of", result.output)
    assert "| Kneser-Ney 5-gram | toy | test | 12.50 |" in (path / "MODEL_CARD.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_run_and_its_bundle_evaluate_alike(
    split: str, trained: tuple[Path, Result], exported: tuple[Path, Result], tiny_data_dir: Path
) -> None:
    of_run, of_bundle = (
        run_cli("evaluate", path, "--data-dir", tiny_data_dir, "--split", split) for path in (trained[0], exported[0])
    )
    assert of_run.code == of_bundle.code == 0
    assert f" little on toy, {split}: perplexity " in of_run.output
    assert _perplexity(of_run) == pytest.approx(_perplexity(of_bundle), rel=1e-3)
    stated = {quality.split: quality.value for quality in read_manifest(exported[0]).quality}
    assert _perplexity(of_bundle) == pytest.approx(stated[split], rel=1e-3)


def test_a_cache_is_added_to_a_trained_run(trained: tuple[Path, Result], tiny_data_dir: Path) -> None:
    def evaluated(*options: str) -> Result:
        return run_cli("evaluate", trained[0], "--data-dir", tiny_data_dir, *options)

    kernels = "output_layer.kernels=[lin, {name: cache, theta: 0.5, weight: 0.3}]"
    plain, cached = evaluated(), evaluated("--set", kernels)
    assert plain.code == cached.code == 0
    assert _perplexity(plain) != pytest.approx(_perplexity(cached), rel=1e-3)
    assert "only fields of output_layer.kernels can be set" in str(evaluated("--set", "seed=2").code)


def test_a_version_is_exported_once_without_force(
    trained: tuple[Path, Result], exported: tuple[Path, Result], tiny_data_dir: Path
) -> None:
    output = exported[0].parents[1]
    result = run_cli("export", trained[0], "--output", output, "--data-dir", tiny_data_dir)
    assert _one_line(result).endswith("exists; raise export.version in the recipe, or use --force")


# ---- going on and starting over ---------------------------------------------------------------------------


def test_a_run_in_two_sessions_is_the_run_in_one(train: Train, recipe: Path, trained: tuple[Path, Result]) -> None:
    first = train(recipe, "--stop-after", 3)
    assert first.code == 0
    assert "best" not in first.output
    second = train(recipe)
    assert "resuming at epoch 1 of 2, step 3" in second.output
    whole = trained[1].output
    assert second.output[second.output.index("best dev") :] == whole[whole.index("best dev") :]


def test_a_finished_run_has_nothing_to_do(train: Train, recipe: Path, tmp_path: Path) -> None:
    train(recipe)
    before = (tmp_path / "runs" / "little" / "best.pt").read_bytes()
    again = train(recipe)
    assert again.code == 0
    assert "nothing to train: 2 of 2 epochs are trained; a higher loop.epochs continues" in again.output
    assert "resuming" not in again.output
    assert "epoch 1: train loss" not in again.output
    assert "best dev perplexity" in again.output
    assert (tmp_path / "runs" / "little" / "best.pt").read_bytes() == before


def test_the_section_export_of_a_finished_run_can_be_set(train: Train, recipe: Path, tmp_path: Path) -> None:
    train(recipe)
    again = train(recipe, "--set", "export.description=2026: better")
    assert again.code == 0
    assert "export.description was '', is '2026: better'" in again.output
    assert RunDirectory(tmp_path / "runs" / "little").recipe().export.description == "2026: better"


def test_a_changed_recipe_is_refused_without_restart(train: Train, recipe: Path, tmp_path: Path) -> None:
    train(recipe, "--stop-after", 1)
    last = (tmp_path / "runs" / "little" / "last.pt").read_bytes()
    _written(recipe, seed=2)
    refused = train(recipe, "--stop-after", 1)
    assert refused.code.endswith("was started with another recipe; --restart starts it over\nseed was 1, is 2")
    assert (tmp_path / "runs" / "little" / "last.pt").read_bytes() == last
    restarted = train(recipe, "--stop-after", 1, "--restart")
    assert restarted.code == 0
    assert "resuming" not in restarted.output
    assert yaml.safe_load((tmp_path / "runs" / "little" / "recipe.yaml").read_text(encoding="utf-8"))["seed"] == 2


def test_fields_set_on_the_command_line_are_part_of_the_run(train: Train, recipe: Path, tmp_path: Path) -> None:
    changed = ("--stop-after", 1, "--set", "loop.epochs=7", "--set", "output_layer.kernels=[2*lin, pow]")
    assert train(recipe, *changed).code == 0
    resolved = RunDirectory(tmp_path / "runs" / "little").recipe()
    assert (resolved.loop.epochs, resolved.output_layer.kernels) == (7, ["2*lin", "pow"])
    assert train(recipe, *changed).code == 0
    refused = train(recipe, "--stop-after", 1, "--set", "loop.epochs=8").code
    assert "--restart starts it over" in refused
    assert "output_layer.kernels was ['2*lin', 'pow'], is 'lin'; loop.epochs was 7, is 8" in refused
    assert "there is no loop.epoch: " in _one_line(train(recipe, "--set", "loop.epoch=1"))


def test_only_the_section_export_is_set_at_export(
    trained: tuple[Path, Result], tiny_data_dir: Path, traced_once: object, tmp_path: Path
) -> None:
    command = ("export", trained[0], "--output", tmp_path, "--data-dir", tiny_data_dir)
    description = "export.description=Words: some, 'quoted' #1"
    result = run_cli(*command, "--set", "export.version=3", "--set", "export.licence=CC BY 4.0", "--set", description)
    assert result.code == 0
    manifest = read_manifest(tmp_path / "little" / "3")
    assert manifest.description == "Words: some, 'quoted' #1"
    assert (manifest.version, manifest.licence) == (3, "CC BY 4.0")
    assert manifest.provenance.recipe["export"]["version"] == 3
    assert "weights are trained already" in _one_line(run_cli(*command, "--set", "loop.epochs=1"))


def test_a_restart_that_cannot_start_keeps_the_run(train: Train, recipe: Path, tmp_path: Path) -> None:
    train(recipe, "--stop-after", 1)
    (tmp_path / "empty").mkdir()
    failed = run_cli("run", recipe, "--data-dir", tmp_path / "empty", "--runs", tmp_path / "runs", "--restart")
    assert "train.txt" in _one_line(failed)
    assert (tmp_path / "runs" / "little" / "last.pt").is_file()


# ---- errors -----------------------------------------------------------------------------------------------


def _one_line(result: Result) -> str:
    """The message a command ended with: what `sys.exit` prints on stderr before it exits with 1."""
    assert isinstance(result.code, str), result
    assert result.code.startswith("softserve-train: ")
    assert "\n" not in result.code
    assert "Traceback" not in result.output
    return result.code


def test_a_missing_recipe_is_one_line(train: Train, tmp_path: Path) -> None:
    assert "nowhere.yaml" in _one_line(train(tmp_path / "nowhere.yaml"))


def test_a_directory_is_no_recipe(train: Train, tmp_path: Path) -> None:
    assert str(tmp_path) in _one_line(train(tmp_path))


def test_a_wrong_recipe_names_its_fields(train: Train, recipe: Path, tmp_path: Path) -> None:
    _written(recipe, loop={"epochs": 0, "speed": 9})
    message = train(recipe).code
    assert message.startswith(f"softserve-train: {recipe} is not a valid recipe:\n")
    assert [line.partition(":")[0] for line in message.splitlines()[1:]] == ["  loop.epochs", "  loop.speed"]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"corpus": "Brown"}, "unknown corpus 'Brown'; known corpora: "),
        ({"corpus": "toy", "column": "en"}, "corpus 'toy' has no column 'en'; it has text"),
        ({"corpus": "ptb"}, "comes from https://catalog.ldc.upenn.edu/LDC99T42"),
    ],
)
def test_wrong_data_are_one_line(data: dict[str, str], said: str, train: Train, recipe: Path) -> None:
    assert said in _one_line(train(_written(recipe, data=data)))


def test_an_unknown_device_is_one_line(train: Train, recipe: Path) -> None:
    assert "toaster" in _one_line(train(recipe, "--device", "toaster"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_an_absent_device_is_one_line(train: Train, recipe: Path) -> None:
    assert "cuda" in _one_line(train(recipe, "--device", "cuda")).lower()


def test_training_that_diverges_is_one_line(train: Train, recipe: Path) -> None:
    _written(recipe, loop={**RECIPE["loop"], "learning_rate": 1e38})
    assert "try a lower learning_rate" in _one_line(train(recipe))


@pytest.mark.parametrize("command", [["evaluate"], ["export", "--output", "models"]], ids=["evaluate", "export"])
def test_no_run_is_one_line(command: list[str], trained: tuple[Path, Result], tmp_path: Path) -> None:
    assert "is not a run directory" in _one_line(run_cli(*command, tmp_path))
    absent = trained[0].with_name("litle")
    there = f"{absent} does not exist; runs in {absent.parent}: little"
    assert _one_line(run_cli(*command, absent)) == f"softserve-train: {there}"


def test_export_needs_an_output(tmp_path: Path) -> None:
    result = run_cli("export", tmp_path)
    assert result.code == 2
    assert "--output" in result.output


def test_a_run_without_an_epoch_cannot_be_used(train: Train, recipe: Path, tiny_data_dir: Path, tmp_path: Path) -> None:
    train(recipe, "--stop-after", 1)
    for command in (["evaluate"], ["export", "--output", tmp_path]):
        result = run_cli(*command, tmp_path / "runs" / "little", "--data-dir", tiny_data_dir)
        assert "best.pt" in _one_line(result)


def test_an_unknown_split_is_one_line(trained: tuple[Path, Result], tiny_data_dir: Path) -> None:
    result = run_cli("evaluate", trained[0], "--data-dir", tiny_data_dir, "--split", "eval")
    assert _one_line(result).endswith("corpus 'toy' has no split 'eval'; it has train, dev, test")


@pytest.mark.parametrize("reference", ["Kneser-Ney", "12.5", "unigrams=many"])
def test_a_wrong_reference_is_one_line(
    reference: str, trained: tuple[Path, Result], tiny_data_dir: Path, tmp_path: Path
) -> None:
    places = ("--output", tmp_path, "--data-dir", tiny_data_dir)
    message = _one_line(run_cli("export", trained[0], *places, "--reference", reference))
    assert "reference" in message
    assert reference in message


@pytest.mark.parametrize(
    ("name", "said"), [("Brown", "unknown corpus 'Brown'"), ("udhr", "no public address serves exactly the files")]
)
def test_what_cannot_be_fetched_is_one_line(name: str, said: str, tmp_path: Path) -> None:
    assert said in _one_line(run_cli("corpora", "--fetch", name, "--data-dir", tmp_path))


def test_a_network_that_fails_is_one_line(tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(url=(tmp_path / "nowhere.txt").as_uri(), checksum="sha256:00")
    monkeypatch.setitem(CORPORA, "toy", replace(tiny_corpus, sources=(source,)))  # type: ignore[arg-type]
    assert "nowhere.txt" in _one_line(run_cli("corpora", "--fetch", "toy", "--data-dir", tmp_path))


def test_help_names_the_commands() -> None:
    result = run_cli("--help")
    assert result.code == 0
    assert all(command in result.output for command in ("run", "evaluate", "export", "device-graphs", "corpora"))


# ---- sparse layers ----------------------------------------------------------------------------------------


def test_a_sparse_run_is_trained_and_evaluated(train: Train, recipe: Path, tiny_data_dir: Path, tmp_path: Path) -> None:
    """Selected by the perplexity of the plain softmax, which a run and its history agree on; served with coverage."""
    layer = {"kernels": "2*lin", "untied": 2, "sparse_k": 6, "variance_penalty": 0.1}
    result = train(_written(recipe, output_layer=layer))
    assert result.code == 0
    history = json.loads((tmp_path / "runs" / "little" / "history.json").read_text(encoding="utf-8"))
    best = min(evaluation["metric"] for evaluation in history)
    assert f"best dev plain_softmax_perplexity {best:.3f}" in result.output
    evaluated = run_cli("evaluate", tmp_path / "runs" / "little", "--data-dir", tiny_data_dir, "--split", "dev")
    assert _perplexity(evaluated) == pytest.approx(best, abs=1e-3)
    assert "little on toy, dev: plain_softmax_perplexity " in evaluated.output
    match = re.search(r"coverage (\S+) \((\d+) of (\d+) tokens\), perplexity (\S+) of those covered", evaluated.output)
    assert match is not None
    assert float(match[1]) == pytest.approx(int(match[2]) / int(match[3]), abs=1e-4)
    assert 0 < int(match[2]) < int(match[3])
    assert 1 <= float(match[4]) <= 12


def test_a_sparse_bundle_is_evaluated_as_it_is_served(sparse_export: WrittenBundle, tiny_data_dir: Path) -> None:
    result = run_cli("evaluate", sparse_export.path, "--data-dir", tiny_data_dir)
    stated = {quality.metric: quality.value for quality in sparse_export.manifest.quality if quality.split == "test"}
    assert f" sparse-toy on toy, test: sparse-softmax coverage {stated['coverage']:.4f} (" in result.output
    assert f"tokens), perplexity {stated['perplexity_of_covered']:.4f} of those covered" in result.output
    assert "inf" not in result.output


def test_options_that_are_wrong_or_without_effect_are_refused_in_one_line_each(train: Train, recipe: Path) -> None:
    message = train(_written(recipe, output_layer={"untied": 2, "sparse_k": 0})).code
    assert [line.partition(":")[0] for line in message.splitlines()[1:]] == [
        "  output_layer.untied",
        "  output_layer.sparse_k",
    ]
