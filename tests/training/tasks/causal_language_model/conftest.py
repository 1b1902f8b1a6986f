"""Texts of counted numbers, and a recipe that learns them in seconds."""

import random
from pathlib import Path
from typing import Any

import pytest

RECIPE: dict[str, Any] = {
    "name": "counting",
    "task": "causal-language-model",
    "data": {
        "files": {"train": "train.txt", "dev": "dev.txt", "test": "test.txt"},
        "vocab_size": 280,
        "batch_tokens": 256,
    },
    "network": {"hidden_size": 32, "layers": 2, "heads": 2, "key_value_heads": 1, "positions": 48, "dropout": 0.1},
    "loop": {"epochs": 6, "learning_rate": 1e-2, "adam_beta2": 0.98, "warmup_steps": 20, "precision": "float32"},
}


def _line(generator: random.Random) -> str:
    """Three to six numbers in order: what follows depends on what was before."""
    first = generator.randrange(4)
    words = ["Null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
    return " ".join(words[first : first + generator.randint(3, 6)])


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with three files of counted numbers."""
    directory = tmp_path_factory.mktemp("counting")
    for seed, (split, size) in enumerate({"train": 600, "dev": 30, "test": 30}.items()):
        generator = random.Random(seed)
        lines = "".join(f"{_line(generator)}\n" for _ in range(size))
        (directory / f"{split}.txt").write_text(lines, encoding="utf-8")
    return directory
