"""How operations compare two results for one input."""

from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from models.operations.comparison import (
    Comparison,
    chrf,
    compare_classes,
    compare_entities,
    compare_numbers,
    compare_scores,
    compare_texts,
    compare_vectors,
    compare_words,
)
from models.operations.operation import Operation, Params, Record
from models.tasks.registry import listed_operations


def classes(*labels, **others):
    found = [SimpleNamespace(label=label, probability=probability) for label, probability in labels]
    return SimpleNamespace(labels=found, **others)


def test_classes_by_hand():
    first = classes(("a", 0.75), ("b", 0.25))
    assert compare_classes(first, classes(("b", 0.5), ("a", 0.25))) == Comparison(
        False, (0.75, 0.25), {"same_set": 1.0, "probability_difference": -0.5}
    )
    assert compare_classes(first, classes(("c", 1.0))).scores == (0.75, 0.0)
    assert not compare_classes(classes(("a", 1), out_of_scope=True), classes(("a", 1), out_of_scope=False)).agrees
    assert compare_classes(classes(), classes()).agrees
    assert not compare_classes(classes(), first).agrees


def test_entities_by_hand():
    def entities(*found):
        return SimpleNamespace(entities=[SimpleNamespace(label=each[0], start=each[1], end=each[2]) for each in found])

    first = entities(("PER", 0, 4), ("LOC", 8, 12))
    assert compare_entities(first, first) == Comparison(True, measures={"f1": 1.0})
    assert compare_entities(first, entities(("PER", 0, 4))).measures["f1"] == pytest.approx(2 / 3)
    assert compare_entities(entities(), entities()).agrees


def test_numbers_and_scores_by_hand():
    first, second = SimpleNamespace(value=1.0, log_probability=-2.0), SimpleNamespace(value=1.5, log_probability=-3.0)
    assert compare_numbers("value")(first, second) == Comparison(None, (1.0, 1.5), {"difference": 0.5})
    assert compare_scores(first, second).measures == {"log_probability_difference": -1.0}


def test_words_by_hand():
    def words(**found):
        return SimpleNamespace(words=[SimpleNamespace(word=word, probability=some) for word, some in found.items()])

    found = compare_words(words(a=0.5, b=0.25), words(a=0.75, c=0.125))
    assert found == Comparison(True, (0.5, 0.75), {"same_set": 0.0, "overlap": 0.5})


def test_texts_by_hand():
    def texts(text, score):
        return SimpleNamespace(outputs=[SimpleNamespace(text=text, score=score)])

    found = compare_texts("outputs")(texts("good day", -1.0), texts("good day", -3.0))
    assert found == Comparison(True, (-1.0, -3.0), {"chrf": 100.0, "log_probability_difference": -2.0})


def test_vectors_by_hand():
    def vector(*values):
        return SimpleNamespace(vector=np.array(values))

    assert compare_vectors(vector(1, 0), vector(3, 4)).measures == {"cosine": pytest.approx(0.6)}
    assert compare_vectors(vector(1, 0), vector(1, 0, 0)).agrees is False


@given(st.text("abc ", max_size=30), st.text("abc ", max_size=30))
def test_chrf_is_that_of_sacrebleu(hypothesis, reference):
    if hypothesis.split() or reference.split():
        assert chrf(hypothesis, reference) == pytest.approx(sacrebleu.sentence_chrf(hypothesis, [reference]).score)


def test_an_operation_without_a_comparison_compares_records():
    class Number(Record):
        value: int

    operation = Operation(name="count", summary="", about="", query=lambda *_: None, params=Params, record=Number)
    one, two = SimpleNamespace(value=1), SimpleNamespace(value=2)
    assert operation.comparison_of(one, one, Params()).agrees is True
    assert operation.comparison_of(one, two, Params()).agrees is False


def test_every_operation_of_the_project_is_compared_by_more_than_its_record():
    own = [each for each in listed_operations() if each.record.__module__.startswith("models.")]
    assert len(own) > 5
    assert all(each.compare is not None for each in own)
