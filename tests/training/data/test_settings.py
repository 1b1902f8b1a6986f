"""Tests of the data sections that tasks share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from training.data.own_files import SplitFiles
from training.tasks.language_model.reading import split_texts
from training.tasks.language_model.settings import DataSettings
from training.tasks.text_classification.reading import read_labelled
from training.tasks.text_classification.settings import LabelledSettings
from training.tasks.text_generation.reading import read_source_targets
from training.tasks.text_generation.settings import GenerationSettings
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import PairSettings

Reader = Callable[[Any, str, Path], Sequence[object]]


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        (DataSettings, split_texts),
        (LabelledSettings, read_labelled),
        (GenerationSettings, read_source_targets),
        (PairSettings, split_pairs),
    ],
)
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, [20, 5, 5]),
        ({"limit": 3}, [3, 3, 3]),
        ({"train_limit": 4}, [4, 5, 5]),
        ({"limit": 6, "train_limit": 4}, [4, 5, 5]),
        ({"limit": 3, "train_limit": 4}, [3, 3, 3]),
    ],
)
def test_limits_are_those_of_all_tasks(
    settings: type[Any], read: Reader, limits: dict[str, int], expected: list[int], tmp_path: Path
) -> None:
    for split, count in (("train", 20), ("dev", 5), ("test", 5)):
        lines = (f"{'ab'[number % 2]}\t{split} {number}\n" for number in range(count))
        if settings in (GenerationSettings, PairSettings):
            lines = (f"{split} {number}\tx {number}\n" for number in range(count))
        (tmp_path / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    columns = {"source": "de", "target": "en"} if settings is PairSettings else {}
    data = settings(**columns, files=SplitFiles(train="train.tsv", dev="dev.tsv", test="test.tsv"), **limits)
    assert [len(read(data, split, tmp_path)) for split in ("train", "dev", "test")] == expected
