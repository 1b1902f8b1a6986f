"""Tests of the text generation task."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fixtures.deberta import DEBERTA, write_sentence_pieces
from tests.fixtures.generation import MASKED_RECIPE, NOTES_RECIPE
from training.data.batching import IGNORED
from training.recipe.loading import parse_recipe
from training.run.directory import RunDirectory
from training.run.session import open_task, start_run
from training.tasks.text_generation import TextGenerationTask
from training.tasks.text_generation.settings import GenerationRecipe


def _task(
    directory: Path, lines: list[str], content: Mapping[str, Any] = NOTES_RECIPE, **data: object
) -> TextGenerationTask:
    directory.mkdir(exist_ok=True)
    (directory / "notes.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = {"train": "notes.tsv", "dev": "notes.tsv", "test": "notes.tsv"}
    recipe = parse_recipe({**content, "data": {**content["data"], "files": files, **data}, "output_layer": {}})
    run = RunDirectory(directory / "run")
    start_run(recipe, run, directory)
    task = open_task(recipe, run, directory, torch.device("cpu"))
    assert isinstance(task, TextGenerationTask)
    return task


def test_it_learns_to_write(notes_task: TextGenerationTask) -> None:
    quality = notes_task.evaluate(notes_task.batches("test"))
    assert quality.value > 90
    assert quality.measurement.metrics["BLEU-4"] > 80
    assert quality.outputs[0].startswith("the ")


def test_a_pair_is_what_the_model_reads_and_learns(tmp_path: Path) -> None:
    task = _task(tmp_path, ["We saw a fox\tThe fox"])
    (batch,) = task.batches("train").epoch(0)
    spell = task.tokenizer.word
    assert [spell(token) for token in batch.source[0].tolist()] == ["[CLS]", "we", "saw", "a", "fox", "[SEP]"]
    assert [spell(token) for token in batch.inputs[0].tolist()] == ["[SEP]", "the", "fox"]
    assert [spell(token) for token in batch.targets[0].tolist()] == ["the", "fox", "[SEP]"]
    assert batch.source_lengths.tolist() == [6]


def test_long_sources_keep_their_head_and_long_targets_are_left_out_of_training(tmp_path: Path) -> None:
    task = _task(tmp_path, ["a " * 20 + "\tb", "a\t" + "b " * 20, "a a\tb"])
    with pytest.warns(UserWarning, match="1 of 3 training pairs are left out: their targets have more than 8 tokens"):
        batches = list(task.batches("train").epoch(0))
    assert sorted(length for batch in batches for length in batch.source_lengths.tolist()) == [4, 16]
    assert sum(int((batch.targets != IGNORED).sum()) for batch in batches) == 4
    (batch,) = task.batches("dev").epoch(0)
    assert len(batch.indices) == 3


def test_a_text_is_asked_once_and_answered_by_any_of_its_targets(tmp_path: Path) -> None:
    task = _task(tmp_path, ["a\tb", "c\td", "a\te"])
    assert sum(len(batch.indices) for batch in task.batches("train").epoch(0)) == 3
    (batch,) = task.batches("dev").epoch(0)
    assert sorted(batch.indices.tolist()) == [0, 1]
    references = task.batches("dev").references
    assert references == [("b", "e"), ("d",)]
    quality = task.quality(["e", "d"], references)
    assert quality.measurement.metrics["BLEU-1"] == pytest.approx(100)


def test_the_metric_is_that_of_the_task(notes_recipe: GenerationRecipe) -> None:
    assert TextGenerationTask.metric_of(notes_recipe) == "ROUGE-L"


def test_texts_must_fit_the_positions_of_a_pretrained_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = _task(tmp_path, ["a b\tc"])
    recipe = _with_pretrained(task, tmp_path, monkeypatch)
    with pytest.raises(ValueError, match="25 tokens are too many for an encoder of 20 positions"):
        TextGenerationTask.build_encoder(recipe, tmp_path)
    recipe = recipe.model_copy(update={"network": recipe.network.model_copy(update={"masked_targets": 0.7})})
    with pytest.raises(ValueError, match="26 tokens are too many"):
        TextGenerationTask.build_encoder(recipe, tmp_path)


def test_masked_targets_need_a_mask_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = _task(tmp_path, ["a b\tc"])
    recipe = _with_pretrained(task, tmp_path, monkeypatch, positions=40, masked_targets=0.7)
    with pytest.raises(
        ValueError, match=r"network\.masked_targets: the encoder's tokenizer has no mask token, \[MASK\]"
    ):
        TextGenerationTask.build_encoder(recipe, tmp_path)


def _with_pretrained(
    task: TextGenerationTask, directory: Path, monkeypatch: pytest.MonkeyPatch, positions: int = 20, **network: object
) -> GenerationRecipe:
    """The recipe of a task with a pretrained encoder, in `directory`, that has the same tokenizer."""
    task.tokenizer.save(directory / "tokenizer.json")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = {"model_type": "bert", "vocab_size": 200, "max_position_embeddings": positions, **sizes}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setattr("training.tasks.encoders.encoder_directory", lambda *_: directory)
    recipe = parse_recipe({**task.recipe.model_dump(), "network": {"pretrained": "own", **network}})
    assert isinstance(recipe, GenerationRecipe)
    return recipe


def test_a_limit_that_leaves_no_pair_is_named(tmp_path: Path) -> None:
    task = _task(tmp_path, ["a\t" + "b " * 20])
    with pytest.raises(ValueError, match=r"data\.max_output_tokens: no training target has at most 8 tokens"):
        task.batches("train")


def test_the_longest_pair_fits_the_positions(tmp_path: Path) -> None:
    task = _task(tmp_path, ["a " * 20 + "\t" + "b " * 8])
    (batch,) = task.batches("train").epoch(0)
    assert (batch.source.shape[1], batch.inputs.shape[1]) == (16, 9)
    loss, count = task.loss(batch)
    assert count == 9
    assert torch.isfinite(loss)
    task = _task(tmp_path / "masked", ["a " * 20 + "\t" + "b " * 8], MASKED_RECIPE)
    assert task.config.positions == 16 + 9 + 1
    loss, count = task.loss(batch)
    assert count == 6  # of 9, 0.7
    assert torch.isfinite(loss)


def test_masks_follow_the_seed(tmp_path: Path) -> None:
    task = _task(tmp_path, ["a b c\tc b a d e f"], MASKED_RECIPE)
    (batch,) = task.batches("train").epoch(0)

    def losses() -> list[float]:
        torch.manual_seed(1)
        return [task.loss(batch)[0].item() for _ in range(3)]

    first = losses()
    assert len(set(first)) == 3
    assert losses() == first


def test_it_learns_by_masked_targets_with_smoothed_labels_and_a_sparse_softmax(masked_task: TextGenerationTask) -> None:
    assert masked_task.evaluate(masked_task.batches("test")).value > 95


def test_training_texts_can_be_measured_too(notes_task: TextGenerationTask) -> None:
    measurement = notes_task.measure("train")
    assert measurement.metrics["ROUGE-L"] > 90
    assert measurement.examples is not None
    assert measurement.examples.value == pytest.approx(measurement.metrics["ROUGE-L"])


def test_deberta_is_refused(tmp_path: Path) -> None:
    write_sentence_pieces(tmp_path / "spm.model")
    config = DEBERTA | {"vocab_size": 180, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match=r"network.pretrained: text generation needs vectors of positions"):
        _task(tmp_path, ["a\tb"], {**NOTES_RECIPE, "network": {"pretrained": str(tmp_path)}})
