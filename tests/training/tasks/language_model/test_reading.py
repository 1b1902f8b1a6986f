"""Tests of the texts of language models."""

import tracemalloc
from pathlib import Path

import pytest

from training.data.tokenization import build_word_tokenizer
from training.tasks.language_model.reading import encoded_split, iterate_texts, split_texts
from training.tasks.language_model.settings import DataSettings


def test_a_file_is_larger_than_the_memory_that_reading_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.tasks.language_model.reading._ENCODED_AT_ONCE", 50)
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{number} is the number of this line of many\n" * 10 for number in range(5000)))
    files = {"train": "train.txt", "dev": "train.txt", "test": "train.txt"}
    data = DataSettings.model_validate({"files": files})
    tracemalloc.start()
    tokenizer = build_word_tokenizer(iterate_texts(data, "train", tmp_path), min_count=11)
    tokens = encoded_split(data, "train", tmp_path, tokenizer)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < path.stat().st_size / 2
    assert list(tokens[-1]) == tokenizer.encode(split_texts(data, "train", tmp_path)[-1])
