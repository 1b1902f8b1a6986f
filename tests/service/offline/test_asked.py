"""Cells and records of each operation."""

import pytest

from models import ModelStore
from models.tasks.language_model import NEXT_WORD, SCORE
from models.tasks.text_classification import CLASSIFY
from models.tasks.translation import TRANSLATE
from service.offline.asked import Asked
from service.offline.options import UsageError
from service.settings import BUNDLED


@pytest.fixture(scope="module")
def store():
    return ModelStore(BUNDLED)


@pytest.mark.parametrize(
    ("name", "asked", "method", "text", "last"),
    [
        ("intents", Asked.of(CLASSIFY, {"top_k": 3}), "classify", "play some music", "play some music"),
        ("next-word", Asked.of(SCORE, {}), "score", "a book .", "a book ."),
        ("next-word", Asked.of(NEXT_WORD, {"top_k": 2}), "next_words", "a book", "a book"),
        ("de-en", Asked.of(TRANSLATE, {}), "translate", "Guten Morgen!", "Good morning!"),
    ],
)
def test_a_result_has_cells_and_a_record(store, name, asked, method, text, last):
    model = store.load(name, threads=1)
    assert asked.name in model.offers
    asked.query(model, text)
    shown = asked.shown(getattr(model, method)([text])[0])
    assert shown.cells[-1] == last
    record = shown.record()
    assert record[next(key for key in ("text", "context") if key in record)] == text


def test_texts_of_no_class_are_said_to_be(store):
    model = store.load("intents", threads=1)
    shown = Asked.of(CLASSIFY, {"top_k": 1}).shown(model.classify(["asdfghjkl"])[0])
    assert shown.cells[2] == "out of scope"


def test_a_parameter_out_of_range_is_an_error_of_usage():
    with pytest.raises(UsageError, match="--beam-size: must be at most 32"):
        Asked.of(TRANSLATE, {"beam_size": 33})


def test_more_words_than_there_are_are_all(store):
    model = store.load("next-word:4", threads=1)
    query = Asked.of(NEXT_WORD, {"top_k": model.vocab_size + 5}).query(model, "a book")
    assert query.top_k == model.vocab_size - 1  # the unknown word is none
