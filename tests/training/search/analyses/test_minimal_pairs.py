"""Tests of mined pairs: mutual neighbours by hand, one replaced word, no pair twice."""

from pathlib import Path

import pytest
import torch

from training.data.tokenization import build_word_tokenizer
from training.run.directory import RunDirectory
from training.run.session import load_trained
from training.search.analyses.disambiguation import locate
from training.search.analyses.minimal_pairs import mine_pairs, mutual_neighbours
from training.tasks.language_model import LanguageModelTask


@pytest.fixture(scope="module")
def task(tiny_run: RunDirectory, tiny_data_dir: Path) -> LanguageModelTask:
    """`ape` and `bat` are each other's nearest, `cat` is nearest to `bat`, which is not nearest to it."""
    trained = load_trained(tiny_run, tiny_data_dir, "cpu")
    tokenizer = build_word_tokenizer(["ape bat cat . isn't"])
    task = LanguageModelTask(trained.recipe, tokenizer, Path(), torch.device("cpu"))
    with torch.no_grad():
        weight = task.model.output_layer.weight.zero_()
        for word, vector in {"ape": (1, 0), "bat": (2, 0.1), "cat": (0, 5), ".": (1, 0.05)}.items():
            weight[tokenizer.encode(word)[0], :2] = torch.tensor(vector, dtype=weight.dtype)
    return task


def test_mutual_neighbours_by_hand(task: LanguageModelTask) -> None:
    ape, bat = task.tokenizer.encode("ape bat")
    assert mutual_neighbours(task) == {ape: bat, bat: ape}


def test_one_word_is_replaced(task: LanguageModelTask) -> None:
    pairs = mine_pairs(task, ["Cat ape.", "cat bat .", "cat cat .", "zebra ape .", "ape?"], 10)
    assert {(pair.right, pair.wrong) for pair in pairs} == {
        ("Cat ape .", "Cat bat ."),
        ("cat bat .", "cat ape ."),
        ("zebra ape .", "zebra bat ."),
        ("ape ?", "bat ?"),
    }
    assert all(None not in locate(pair, task.tokenizer).tokens for pair in pairs)


def test_equal_beginnings_count_once_and_the_order_is_seeded(task: LanguageModelTask) -> None:
    assert len(mine_pairs(task, ["cat ape .", "cat ape", "cat ape cat"], 10)) == 1
    texts = [f"{before} ape" for before in ("ape", "cat", "cat cat", "cat ape", "bat", "zebra")]
    assert mine_pairs(task, texts, 3) == mine_pairs(task, texts, 3)
    assert len(mine_pairs(task, texts, 3)) == 3
    assert mine_pairs(task, texts, 6, seed=1) != mine_pairs(task, texts, 6, seed=2)
    with pytest.raises(ValueError, match="none of 2 texts"):
        mine_pairs(task, ["cat", "zebra"], 3)
