"""Long texts in windows: the same as their windows, computed by hand."""

import math

import numpy as np
import pytest

from models.errors import QueryError, TextTooLongError
from models.store import BUNDLED, ModelStore, load_bundle
from models.tasks.windowed import aggregated

WORDS = [f"{'ab cd'[number % 5 :]} {number}" for number in range(40)]
LONG = " ".join(WORDS)
SHORT = "one two"


@pytest.fixture(scope="module")
def embedder(encoder_models):
    return load_bundle(encoder_models / "vectors" / "1")


@pytest.fixture(scope="module")
def regressor(encoder_models):
    return load_bundle(encoder_models / "ranks" / "1")


@pytest.fixture(scope="module")
def intents():
    return ModelStore(BUNDLED).load("intents")


def windows_by_hand(model, text, overlap, prompt=""):
    """Return the token ids of the windows of a text, special tokens included."""
    tokenizer, most = model._texts.tokenizer, model.longest_input
    before, ids = tokenizer.encode(prompt), tokenizer.encode(text)
    room, found, start = most - 2 - len(before), [], 0
    while True:
        found.append([tokenizer.start_id, *before, *ids[start : start + room], tokenizer.end_id])
        if start + room >= len(ids):
            return found
        start += room - overlap


@pytest.mark.parametrize(("prompt", "before"), [(None, ""), ("query", "one ")])
@pytest.mark.parametrize("aggregation", ["mean", "max"])
def test_vectors_are_those_of_the_windows(embedder, aggregation, prompt, before):
    ids = windows_by_hand(embedder, LONG, 5, before)
    assert len(ids) > 2
    vectors = np.array([each.vector for each in embedder.run([embedder.token_query(some) for some in ids])])
    expected = vectors.mean(0) if aggregation == "mean" else vectors.max(0)
    expected /= np.linalg.norm(expected)
    found = embedder.embed([SHORT, LONG], windows=aggregation, overlap=5, prompt=prompt)
    np.testing.assert_allclose(found[1], expected, atol=1e-6)
    np.testing.assert_allclose(found[0], embedder.embed([SHORT], prompt=prompt)[0], atol=1e-6)
    raw = embedder.embed([LONG], windows="mean", overlap=5, prompt=prompt, normalize=False, dimensions=4)
    queries = [embedder.token_query(some, 4, normalize=False) for some in ids]
    np.testing.assert_allclose(raw[0], np.mean([each.vector for each in embedder.run(queries)], 0), atol=1e-6)
    small = embedder.embed([LONG], windows=aggregation, overlap=5, prompt=prompt, precision="int8")
    np.testing.assert_array_equal(small[0], np.rint(127 * found[1]).astype(np.int8))


def test_a_text_has_as_many_parts_and_items_as_windows(embedder):
    (query,) = embedder.queries_of([LONG], windows="mean", overlap=5)
    windows = windows_by_hand(embedder, LONG, 5)
    assert [list(part.encoded.tokens) for part in query.parts()] == windows
    assert query.result_items == len(windows)  # of 16 dimensions each
    default = windows_by_hand(embedder, LONG, (embedder.longest_input - 2) // 8)
    (query,) = embedder.queries_of([LONG], windows="mean")
    assert [list(part.encoded.tokens) for part in query.parts()] == default


@pytest.mark.parametrize("aggregation", ["mean", "max"])
def test_numbers_are_those_of_the_windows(regressor, aggregation):
    (query,) = regressor.queries_of([LONG], windows=aggregation, overlap=3)
    assert [list(part.encoded.tokens) for part in query.parts()] == windows_by_hand(regressor, LONG, 3)
    values = [each.value for each in regressor.run(query.parts())]
    found, short = regressor.regress([LONG, SHORT], windows=aggregation, overlap=3)
    assert found.value == pytest.approx(np.mean(values) if aggregation == "mean" else max(values), abs=1e-6)
    assert (found.windows, short.windows) == (len(values), 1)
    assert short.value == pytest.approx(regressor.regress([SHORT])[0].value, abs=1e-6)


@pytest.mark.parametrize("aggregation", ["mean", "max"])
def test_classes_are_those_of_the_windows(intents, aggregation):
    """The bundled classifier has a sparse-softmax: classes that a window does not list have probability 0 there."""
    text = " ".join(["book a table for two", "play some music", "what is the weather like", "thanks"] * 20)
    ids = windows_by_hand(intents, text, 10)
    assert len(ids) == 3
    probabilities = {label: [0.0] * len(ids) for label in intents.labels}
    for number, each in enumerate(intents.run([intents.token_query(some, len(intents.labels)) for some in ids])):
        for label in each.labels:
            probabilities[label.label][number] = label.probability
    together = {label: sum(some) / 3 if aggregation == "mean" else max(some) for label, some in probabilities.items()}
    best = sorted(together.items(), key=lambda item: -item[1])[:3]
    (found,) = intents.classify([text], 3, windows=aggregation, overlap=10)
    assert [each.label for each in found.labels] == [label for label, _ in best]
    assert [each.probability for each in found.labels] == pytest.approx([value for _, value in best], abs=1e-5)
    assert found.windows == 3
    everything = intents.classify([text], 1000, windows=aggregation, overlap=10)[0].labels
    assert len(everything) == sum(value > 0 for value in together.values())


def test_a_short_text_has_the_same_classes_in_one_window(intents):
    texts = ["book a table for two", "", "what is a quark"]
    for plain, found in zip(intents.classify(texts), intents.classify(texts, windows="max"), strict=True):
        assert (found.windows, plain.windows, found.out_of_scope) == (1, None, plain.out_of_scope)
        assert [each.label for each in found.labels] == [each.label for each in plain.labels]
        for one, other in zip(found.labels, plain.labels, strict=True):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)


def test_windows_and_texts_are_computed_in_one_batch(intents):
    (query,) = intents.queries_of(["play some music"], windows="mean")
    plain = intents.query("book a table for two", 2)
    first, second = intents.run([query.parts()[0], plain])
    assert first.shape == (151,), "the probabilities, and the score of the rule for texts out of scope"
    assert second.labels[0].label == intents.classify(["book a table for two"], 1)[0].labels[0].label


def test_windows_are_out_of_scope_by_the_mean_score(intents):
    """One window is the text itself; of two, by a threshold between their mean and the larger score."""
    for text in ("play some music", "tell me something about the tallest mountain"):
        (whole,), (window,) = intents.classify([text]), intents.classify([text], windows="mean")
        assert whole.out_of_scope == window.out_of_scope == (intents.scores([text])[0] < intents.scope.threshold)
    long = "play some music " * 40 + "the mountain and the sea and the wind " * 8
    (query,) = intents.queries_of([long], windows="max")
    scores = [part[-1] for part in intents.run(query.parts())]
    rule = intents.scope
    try:
        for threshold, windows, outside in (
            (np.mean(scores) + 1e-3, "mean", True),
            (np.mean(scores) - 1e-3, "mean", False),
            (max(scores) - 1e-3, "max", False),
            (max(scores) + 1e-3, "max", True),
        ):
            intents.scope = rule.with_threshold(float(threshold))
            assert intents.classify([long], windows=windows)[0].out_of_scope is outside
    finally:
        intents.scope = rule


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"overlap": 3}, "an overlap needs windows"),
        ({"windows": "mean", "truncate": True}, "give either windows or truncate"),
        ({"windows": "mean", "overlap": 38}, "overlap must be from 0 to 37, not 38"),
    ],
)
def test_parameters_that_do_not_fit(embedder, regressor, chosen, message):
    for function in (embedder.embed, regressor.regress):
        limit = function.__self__.longest_input
        changed = {**chosen, **({"overlap": limit - 2} if chosen.get("overlap") == 38 else {})}
        wanted = message.replace("37", str(limit - 3)).replace("38", str(limit - 2))
        with pytest.raises(QueryError, match=wanted):
            function(["a"], **changed)


def test_what_is_refused(embedder, regressor):
    with pytest.raises(QueryError, match="windows are for single texts, not for pairs"):
        regressor.regress(["a"], text_pair="b", windows="mean")
    with pytest.raises(TextTooLongError):
        embedder.embed(["a b " * 50_000], windows="mean")
    with pytest.raises(TextTooLongError):
        embedder.embed(["a b " * 10_000_000], windows="mean")
    with pytest.raises(QueryError, match="half of a surrogate pair"):
        embedder.embed(["a \ud800"], windows="mean")


def test_aggregated_numbers():
    assert aggregated([1.0, 3.0, 8.0], "mean") == 4
    assert aggregated([np.array([1, -2]), np.array([-3, 4])], "max").tolist() == [1, 4]
    assert math.isclose(float(aggregated([0.1] * 3, "mean")), 0.1)
