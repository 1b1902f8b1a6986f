"""Results have the places of their texts, in whatever groups they are computed."""

import pytest

from models import ModelError, ModelStore, NativeError, QueryError
from service.offline import computing
from service.offline.computing import compute, prepare, prepare_ahead
from service.offline.lines import Line
from service.settings import BUNDLED


@pytest.fixture(scope="module")
def store():
    return ModelStore(BUNDLED)


def lines(texts):
    return [Line(number, text) for number, text in enumerate(texts, 1)]


def by_place(groups):
    pairs = [pair for group in groups for pair in group]
    assert len(dict(pairs)) == len(pairs)
    return [result for _, result in sorted(pairs, key=lambda pair: pair[0])]


@pytest.mark.parametrize("threads", [1, 3])
def test_batches(store, threads):
    model = store.load("next-word:4", threads=1)
    texts = [" ".join(["the"] * (1 + number % 13)) for number in range(150)]
    found = by_place(compute(model, "score", prepare(model.score_query, lines(texts)), threads))
    expected = model.score(texts)
    assert [each.text for each in found] == texts
    assert [each.log_probability for each in found] == pytest.approx(
        [each.log_probability for each in expected], rel=1e-4
    )


def test_decodings(store, monkeypatch):
    monkeypatch.setattr(computing, "_PART", 4)
    model = store.load("de-en", threads=1, parallel=2)
    texts = ["Guten Morgen!", "", "Wo ist der Bahnhof? Ich suche ihn.", "Ja", "Nein", " \n", "Danke", "Hallo"]
    found = by_place(compute(model, "translate", prepare(model.query, lines(texts)), 2))
    expected = model.translate(texts)
    assert [each.translations[0].text for each in found] == [each.translations[0].text for each in expected]


def test_refused_texts_have_their_error(store):
    model = store.load("next-word:4", threads=1)
    good, bad = by_place(compute(model, "score", prepare(model.score_query, lines(["a", "b " * 5000])), 1))
    assert good.text == "a"
    assert isinstance(bad, QueryError)


def test_windows_are_prepared_ahead_in_their_order():
    made = []

    def windows():
        for number in range(4):
            made.append(number)
            yield lines(f"{number}{letter}" for letter in "abc")

    found = prepare_ahead(str.upper, windows())
    first = next(found)
    assert (first.lines, first.queries) == (lines(["0a", "0b", "0c"]), {0: "0A", 1: "0B", 2: "0C"})
    assert [window.lines[0].text for window in found] == ["1a", "2a", "3a"]
    assert made == [0, 1, 2, 3]


def test_an_error_of_reading_comes_after_the_windows_before_it():
    def windows():
        yield lines(["a"])
        raise ValueError("line 2")

    found = prepare_ahead(str.upper, windows())
    assert next(found).lines == lines(["a"])
    with pytest.raises(ValueError, match="line 2"):
        next(found)


def test_lines_that_cannot_be_read_and_panics_have_their_error():
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})

    def query(text):
        if text == "panic":
            raise panic("too many steps")
        return text.upper()

    found = prepare(query, [Line(1, "a"), Line(2, "\ufffd", "byte 1 is not UTF-8"), Line(3, "panic"), Line(4, "b")])
    assert found.queries == {0: "A", 3: "B"}
    (_, unread), (_, panicked) = found.refused
    assert (type(unread), str(unread)) == (QueryError, "byte 1 is not UTF-8")
    assert (type(panicked), str(panicked)[-30:]) == (NativeError, "PanicException: too many steps")


def test_a_result_that_native_code_fails_on_has_its_error(store, monkeypatch):
    model = store.load("next-word:4", threads=1)
    result = model.result

    def failing(query, outputs):
        if query.text == "b":
            raise NativeError("the tokenizer failed")
        return result(query, outputs)

    monkeypatch.setattr(model, "result", failing)
    first, second, third = by_place(compute(model, "score", prepare(model.score_query, lines("abc")), 1))
    assert (first.text, type(second), third.text) == ("a", NativeError, "c")
    assert isinstance(second, ModelError)
