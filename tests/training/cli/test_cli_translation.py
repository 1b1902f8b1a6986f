"""Tests of the commands with translation models."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.cli import test_cli
from tests.training.cli.test_cli import Train, _one_line, run_cli
from training.bundling.bundle import WrittenBundle
from training.data.corpus import Corpus
from training.run.directory import RunDirectory

recipe, train = test_cli.recipe, test_cli.train  # fixtures

PAIRS: dict[str, Any] = {
    "name": "little-pairs",
    "task": "translation",
    "data": {"corpus": "numerals", "source": "de", "target": "en", "vocab_size": 300, "limit": 60, "batch_tokens": 512},
    "network": {"hidden_size": 16, "inner_size": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1},
    "loop": {"epochs": 2, "learning_rate": 1e-2, "warmup_steps": 5, "precision": "float32"},
    "export": {"torchscript": False, "licence": "Apache-2.0", "max_tokens": 40},
}


def test_a_translator_is_trained_and_evaluated(
    pairs_corpus: Corpus, train: Train, recipe: Path, tiny_data_dir: Path, tmp_path: Path
) -> None:
    recipe.write_text(yaml.safe_dump(PAIRS), encoding="utf-8")
    first, second = train(recipe, "--stop-after", 1), train(recipe)
    assert (first.code, second.code) == (0, 0)
    assert "resuming at epoch 1 of 2, step 1" in second.output
    run = tmp_path / "runs" / "little-pairs"
    history = json.loads((run / "history.json").read_text(encoding="utf-8"))
    assert f"best dev BLEU {max(each['metric'] for each in history):.3f} after epoch" in second.output
    of_run = run_cli("evaluate", run, "--data-dir", tiny_data_dir, "--split", "dev")
    assert re.search(r"little-pairs on numerals, dev: greedy, BLEU \d+\.\d\d \(nrefs:1\|.*\)", of_run.output)


def test_a_bundle_is_evaluated(pairs_corpus: Corpus, pairs_export: WrittenBundle, tiny_data_dir: Path) -> None:
    found = run_cli("evaluate", pairs_export.path, "--data-dir", tiny_data_dir)
    assert found.code == 0
    measured = [quality for quality in pairs_export.manifest.quality if quality.split == "test"]
    assert measured
    for quality in measured:
        assert f"test: beam 5, {quality.metric} {quality.value:.2f}" in found.output


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"vocab_size": 257}, "data.vocab_size"),
        ({"source": None}, "data.source"),
        ({"column": "de"}, "data.column"),
    ],
)
def test_a_wrong_translation_recipe_names_its_fields(
    data: dict[str, Any], said: str, train: Train, recipe: Path
) -> None:
    recipe.write_text(yaml.safe_dump({**PAIRS, "data": {**PAIRS["data"], **data}}), encoding="utf-8")
    assert [line.partition(":")[0] for line in train(recipe).code.splitlines()[1:]] == [f"  {said}"]


def test_own_files_are_held_out_of_and_said_to_be(
    train: Train, recipe: Path, tiny_data_dir: Path, tmp_path: Path
) -> None:
    (tiny_data_dir / "own.tsv").write_text("".join(f"wort {i}\tword {i}\n" for i in range(40)), encoding="utf-8")
    data = {key: value for key, value in PAIRS["data"].items() if key != "corpus"} | {"files": {"train": "own.tsv"}}
    recipe.write_text(yaml.safe_dump({**PAIRS, "name": "own", "data": data}), encoding="utf-8")
    result = train(recipe)
    assert result.code == 0
    for split in ("dev", "test"):
        note = f"no {split} file: 1/20 of the sources in own.tsv, at most 2000, are held out for it, always the same"
        assert note in result.output
    evaluated = run_cli("evaluate", tmp_path / "runs" / "own", "--data-dir", tiny_data_dir)
    assert " own on own.tsv, held out, test: greedy, BLEU " in evaluated.output
    (tiny_data_dir / "own.tsv").write_text("wort word\n", encoding="utf-8")
    assert "own.tsv, line 1: 1 column, not source<TAB>target" in _one_line(train(recipe, "--restart"))


def test_heads_that_do_not_divide_are_named(train: Train, recipe: Path) -> None:
    recipe.write_text(yaml.safe_dump({**PAIRS, "network": {"heads": 3}}), encoding="utf-8")
    assert "network: Value error, hidden_size must be even and divisible by heads, not 256, 3" in train(recipe).code


def test_a_language_model_analysis_of_a_translator_is_one_line(pairs_run: RunDirectory, tiny_data_dir: Path) -> None:
    result = run_cli("analyze", "mixture", pairs_run.path, "--data-dir", tiny_data_dir)
    assert "is a run of task 'translation', which does not offer the operation 'next-word'" in _one_line(result)
