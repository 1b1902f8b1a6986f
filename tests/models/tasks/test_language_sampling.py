"""Drawn tokens follow the distribution, temperature and nucleus that were asked for."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from models.tasks.language_sampling import DrawQuery, drawn_place

P = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))


def places(query, count=4000, values=P, tokens=None):
    uniforms = (np.arange(count) + 0.5) / count
    drawn = (drawn_place(values, replace(query, uniform=uniform), tokens) for uniform in uniforms)
    found = Counter(drawn)
    return [found[place] / count for place in range(len(values))]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_fractions_are_the_probabilities_at_the_temperature(temperature):
    expected = np.exp(P / temperature)
    assert places(DrawQuery((1,), temperature=temperature)) == pytest.approx(expected / expected.sum(), abs=1e-3)


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [
        (0.3, [1.0, 0, 0, 0]),
        (0.6, [2 / 3, 1 / 3, 0, 0]),
        (0.8, [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0]),
        (0.99, [0.5, 0.25, 0.15, 0.1]),
    ],
)
def test_a_nucleus_is_the_fewest_tokens_with_the_mass(top_p, expected):
    assert places(DrawQuery((1,), temperature=1.0, top_p=top_p)) == pytest.approx(expected, abs=1e-3)


def test_what_is_left_out_is_never_drawn():
    values = np.where(np.arange(4) == 0, -math.inf, P)
    assert places(DrawQuery((1,), temperature=1.0), values=values) == pytest.approx([0, 0.5, 0.3, 0.2], abs=1e-3)
    assert drawn_place(values, DrawQuery((1,))) == 1
    edge = DrawQuery((1,), temperature=1.0, uniform=math.nextafter(1, 0))
    assert drawn_place(np.append(P, np.float32(-math.inf)), edge) == 3


ADDED = {0: -2.0, 2: 1.5, 3: -0.25}


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_adjustments_are_added_before_the_temperature(temperature):
    expected = np.exp((P + np.array([-2.0, 0.0, 1.5, -0.25])) / temperature)
    query = DrawQuery((1,), temperature=temperature, adjustments=ADDED)
    assert places(query) == pytest.approx(expected / expected.sum(), abs=1e-3)
    order = np.array([2, 0, 3, 1])  # the ids at each place
    assert places(query, values=P[order], tokens=order) == pytest.approx((expected / expected.sum())[order], abs=1e-3)
    nucleus = places(replace(query, top_p=float(expected.max() / expected.sum())))
    assert nucleus == pytest.approx([0, 0, 1, 0], abs=1e-3)


def test_adjustments_hold_at_temperature_0_and_admit_nothing_of_probability_0():
    assert drawn_place(P, DrawQuery((1,), adjustments=ADDED)) == 2
    values = np.where(np.arange(4) == 2, -math.inf, P)
    assert drawn_place(values, DrawQuery((1,), adjustments={2: 100.0, 0: -1.0})) == 1


def test_the_model_draws_the_same_token_alone_and_in_a_batch(model, tokenizer):
    texts = ["we had a very", "i", "the man who"]
    queries = [
        DrawQuery((tokenizer.end_id, *tokenizer.encode(text)), None, temperature, 0.9, 0.7, alternatives)
        for text, temperature, alternatives in zip(texts, (0.0, 1.0, 0.0), (0, 3, 2), strict=True)
    ]
    together = model.run_draws(queries)
    for query, one in zip(queries, together, strict=True):
        (alone,) = model.run_draws([query])
        assert alone.token == one.token != tokenizer.unknown_id
        assert alone.log_probability == pytest.approx(one.log_probability, abs=1e-5)
        assert len(one.alternatives) == query.alternatives
        assert [token for token, _ in one.alternatives] == [token for token, _ in alone.alternatives]


def test_greedy_tokens_and_alternatives_are_the_next_words(model, tokenizer):
    text = "we had a very"
    (drawn,) = model.run_draws([DrawQuery((tokenizer.end_id, *tokenizer.encode(text)), alternatives=3)])
    expected = model.next_words([text], 3)[0].words
    assert [tokenizer.word(token) for token, _ in drawn.alternatives] == [each.word for each in expected]
    assert drawn.log_probability == drawn.alternatives[0][1] == pytest.approx(expected[0].log_probability, abs=1e-5)
    (after,) = model.run_draws([DrawQuery((drawn.token,), drawn.prefix)])
    whole = f"{text} {tokenizer.word(drawn.token)}"
    assert tokenizer.word(after.token) == model.next_words([whole], 1)[0].words[0].word


def test_special_spellings_are_tokens_and_other_text_is_text(model, tokenizer):
    ids = model.token_ids("we had</s>a <unk> xyzzyx")
    end, unknown = tokenizer.end_id, tokenizer.unknown_id
    assert ids == [*tokenizer.encode("we had"), end, *tokenizer.encode("a"), unknown, unknown]
    assert model.spelled(ids) == ["we", "had", "</s>", "a", "<unk>", "<unk>"]
    assert model.token_ids("") == []


def test_reported_values_are_those_without_adjustments(model, tokenizer):
    text = (tokenizer.end_id, *tokenizer.encode("we had a very"))
    (plain,) = model.run_draws([DrawQuery(text, alternatives=3)])
    other = plain.alternatives[1][0]
    queries = [DrawQuery(text, alternatives=3, adjustments={plain.token: -100.0}), DrawQuery(text, alternatives=3)]
    banned, same = model.run_draws(queries)
    assert same.token == plain.token
    assert banned.token == other
    assert banned.log_probability == pytest.approx(plain.alternatives[1][1], abs=1e-5)
    assert [each for each, _ in banned.alternatives] == [each for each, _ in plain.alternatives]
