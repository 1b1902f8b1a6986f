from pathlib import Path

import models
import training.softmax
from docs.generators.python_api import signature
from models import ModelStore

PAGE = Path(__file__).parents[3] / "docs/reference/python.md"


def plain(a: int, *rest: str, b: float = 1.0, **others: object) -> "list[int]":
    del a, rest, b, others
    return []


def test_signatures_are_those_of_the_source():
    assert signature(plain, "plain") == "plain(a: int, *rest: str, b: float = 1.0, **others: object) -> 'list[int]'"
    assert signature(ModelStore.__init__, "ModelStore") == "ModelStore(*directories: str | Path)"


def test_every_public_name_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    for name in (*models.__all__, *training.softmax.__all__):
        assert f"\n### {name}\n" in text
