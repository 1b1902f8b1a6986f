"""Tests of the texts of language models."""

import tracemalloc
from pathlib import Path

import pytest

from training.tasks.language_model.reading import encoded_split, split_texts
from training.tasks.language_model.settings import DataSettings, LanguageModelRecipe
from training.tasks.language_model.task import LanguageModelTask


def test_a_file_is_larger_than_the_memory_that_reading_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.tasks.language_model.reading._ENCODED_AT_ONCE", 20)
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{number} is the number of this line of many\n" * 10 for number in range(1000)))
    files = {"train": "train.txt", "dev": "train.txt", "test": "train.txt"}
    recipe = LanguageModelRecipe.model_validate(
        {"name": "large", "task": "language-model", "data": {"files": files, "min_count": 11}}
    )
    tracemalloc.start()
    tokenizer = LanguageModelTask.build_tokenizer(recipe, tmp_path)
    tokens = encoded_split(recipe.data, "train", tmp_path, tokenizer)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < path.stat().st_size / 2
    assert list(tokens[-1]) == tokenizer.encode(split_texts(recipe.data, "train", tmp_path)[-1])


def test_a_wrong_line_is_named_whatever_the_limit(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(b"good\ncaf\xe9\nbetter\nbest\n")
    files = {"train": "train.txt", "dev": "train.txt", "test": "train.txt"}
    data = DataSettings.model_validate({"files": files, "limit": 2})
    with pytest.raises(ValueError, match=r"train\.txt, line 2: byte 4 is not UTF-8"):
        split_texts(data, "train", tmp_path)
