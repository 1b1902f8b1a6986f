"""Results have the places of their texts, in whatever groups they are computed."""

import pytest

from models import ModelStore, QueryError
from service.offline import computing
from service.offline.computing import compute, prepare, prepare_ahead
from service.settings import BUNDLED


@pytest.fixture(scope="module")
def store():
    return ModelStore(BUNDLED)


def by_place(groups):
    pairs = [pair for group in groups for pair in group]
    assert len(dict(pairs)) == len(pairs)
    return [result for _, result in sorted(pairs, key=lambda pair: pair[0])]


@pytest.mark.parametrize("threads", [1, 3])
def test_batches(store, threads):
    model = store.load("next-word", threads=1)
    texts = [" ".join(["the"] * (1 + number % 13)) for number in range(150)]
    found = by_place(compute(model, "score", prepare(model.score_query, texts), threads))
    expected = model.score(texts)
    assert [each.text for each in found] == texts
    assert [each.log_probability for each in found] == pytest.approx(
        [each.log_probability for each in expected], rel=1e-4
    )


def test_decodings(store, monkeypatch):
    monkeypatch.setattr(computing, "_PART", 4)
    model = store.load("de-en", threads=1, parallel=2)
    texts = ["Guten Morgen!", "", "Wo ist der Bahnhof? Ich suche ihn.", "Ja", "Nein", " \n", "Danke", "Hallo"]
    found = by_place(compute(model, "translate", prepare(model.query, texts), 2))
    expected = model.translate(texts)
    assert [each.translations[0].text for each in found] == [each.translations[0].text for each in expected]


def test_refused_texts_have_their_error(store):
    model = store.load("next-word", threads=1)
    good, bad = by_place(compute(model, "score", prepare(model.score_query, ["a", "b " * 5000]), 1))
    assert good.text == "a"
    assert isinstance(bad, QueryError)


def test_windows_are_prepared_ahead_in_their_order():
    made = []

    def windows():
        for number in range(4):
            made.append(number)
            yield [f"{number}{letter}" for letter in "abc"]

    found = prepare_ahead(str.upper, windows())
    first = next(found)
    assert (first.texts, first.queries) == (["0a", "0b", "0c"], {0: "0A", 1: "0B", 2: "0C"})
    assert [window.texts[0] for window in found] == ["1a", "2a", "3a"]
    assert made == [0, 1, 2, 3]


def test_an_error_of_reading_comes_after_the_windows_before_it():
    def windows():
        yield ["a"]
        raise ValueError("line 2")

    found = prepare_ahead(str.upper, windows())
    assert next(found).texts == ["a"]
    with pytest.raises(ValueError, match="line 2"):
        next(found)
