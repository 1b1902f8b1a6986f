"""Cells and records of each operation."""

import pytest

from models import ModelStore
from service.offline import operations
from service.settings import BUNDLED


@pytest.fixture(scope="module")
def store():
    return ModelStore(BUNDLED)


@pytest.mark.parametrize(
    ("name", "operation", "method", "text", "last"),
    [
        ("intents", operations.classify(3, truncate=False), "classify", "play some music", "play some music"),
        ("next-word", operations.score(truncate=False), "score", "a book .", "a book ."),
        ("next-word", operations.next_word(2, truncate=False), "next_words", "a book", "a book"),
        ("de-en", operations.translate(5, None, truncate=False), "translate", "Guten Morgen!", "Good morning!"),
    ],
)
def test_a_result_has_cells_and_a_record(store, name, operation, method, text, last):
    model = store.load(name, threads=1)
    assert operation.name in model.offers
    operation.query(model, text)
    shown = operation.shown(getattr(model, method)([text])[0])
    assert shown.cells[-1] == last
    record = shown.record()
    assert record[next(key for key in ("text", "context") if key in record)] == text


def test_texts_of_no_class_are_said_to_be(store):
    model = store.load("intents", threads=1)
    shown = operations.classify(1, truncate=False).shown(model.classify(["asdfghjkl"])[0])
    assert shown.cells[2] == "out of scope"
