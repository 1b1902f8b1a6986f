"""Tests of the language model: hand-computed results, a backend that counts, then the bundled model.

Shapes: `B` sequences, `T` time steps, `V` words.
"""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import LanguageModel, QueryError
from models.reading import parse_manifest
from models.tasks.language_results import NextWord, ScoreQuery, TokenScore

CLOSE = 1e-5
TEXTS = ["", "thank you very", "a", "we had a very good time at the end of the day", "i do not zzyzx know , but ."]
SENTENCE = "he said that it was a long day and we were happy to go "
LONG = " ".join((SENTENCE * 8).split()[:100])
RUBBISH = [
    "😀",
    "👩‍👩‍👧‍👦",
    "你好，世界",
    "\0",
    "a\0b",
    "\x01\x1f\x7f",
    " ",
    "\n\t  ",
    "</s>",
    "<unk>",
    "\ufeff",
    "ﷺ",
    "'.'.",
    "\u202e",
]
quick = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def log_probabilities(result):
    return [word.log_probability for word in result.words]


def scores(result):
    return [token.log_probability for token in result.tokens]


def assert_same_next_words(one, other):
    """Equal up to rounding, which may swap words of equal probability."""
    np.testing.assert_allclose(log_probabilities(one), log_probabilities(other), atol=CLOSE)
    ours, theirs = ({word.word: word.log_probability for word in result.words} for result in (one, other))
    assert all(math.isclose(ours[word], theirs[word], abs_tol=CLOSE) for word in ours.keys() & theirs.keys())
    assert len(ours.keys() & theirs.keys()) >= len(ours) - 1
    assert one.entropy == pytest.approx(other.entropy, abs=CLOSE)
    assert [c.kernel for c in one.components] == [c.kernel for c in other.components]
    weights = [[c.weight for c in result.components] for result in (one, other)]
    np.testing.assert_allclose(*weights, atol=CLOSE)


def assert_same_score(one, other):
    assert (one.text, [t.word for t in one.tokens]) == (other.text, [t.word for t in other.tokens])
    np.testing.assert_allclose(scores(one), scores(other), atol=CLOSE)


def chain(model, tokenizer, text):
    """Log-probabilities of the words of a text and, after each of its beginnings, of the end; by whole prefixes."""
    words, end = text.split(), tokenizer.end_id
    beginnings = [" ".join(words[:count]) for count in range(len(words) + 1)]
    table = np.concatenate([model.distribution([beginning]) for beginning in beginnings])
    ids = tokenizer.encode(text)
    return [float(table[step, token]) for step, token in enumerate(ids)], table[:, end].tolist()


# ---- hand-computed ----


def test_probability_of_a_word():
    assert NextWord("a", math.log(0.25)).probability == pytest.approx(0.25)


# ---- a backend that counts the positions it has read ----


def test_scores_stand_at_their_words(counting):
    (score,) = counting[0].score(["a </s> zebra"])
    assert score.tokens == (
        TokenScore("a", 0, False),
        TokenScore("</s>", -1, True),
        TokenScore("zebra", -2, True),
        TokenScore("</s>", -3, False),
    )


def test_targets_are_the_inputs_moved_by_one_step(counting):
    model, backend = counting
    model.score(["a b c"])
    ((_, inputs),) = backend.calls
    assert inputs["tokens"].tolist() == [[1, 2, 3, 4]]
    assert inputs["targets"].tolist() == [[2, 3, 4, 1]]


@pytest.mark.parametrize("words", [31, 32, 63, 64, 100])
def test_long_texts_are_read_in_windows_of_32_steps(counting, words):
    model, backend = counting
    (score,) = model.score(["a " * words])
    assert scores(score) == [-step for step in range(words + 1)]
    full, rest = divmod(words + 1, 32)
    assert backend.shapes == [(1, 32)] * full + [(1, rest)] * bool(rest)


def test_many_texts_are_scored_256_positions_at_a_time(counting):
    model, backend = counting
    model.run_score([ScoreQuery("", (word, *[2] * 39), ("a",) * 40) for word in range(2, 35)])
    assert backend.shapes == [(8, 32)] * 4 + [(1, 32), (28, 9), (5, 9)]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 100), max_size=50))
def test_any_mix_of_lengths_is_scored_in_order_and_in_bounded_runs(counting, lengths):
    model, backend = counting
    backend.calls.clear()
    results = model.score(["a " * length for length in lengths])
    assert [scores(result) for result in results] == [[-step for step in range(length + 1)] for length in lengths]
    assert all(rows * steps <= 1024 and steps <= 32 for rows, steps in backend.shapes)


def test_the_hypotheses_of_a_list_share_their_beginning(counting):
    model, backend = counting
    texts = [f"{'a ' * 15}{last} a" for last in ("a", "b", "c", "very", "thank", "you", "zebra", "a", "")]
    results = model.score(texts)
    assert backend.shapes == [(1, 15), (8, 3)]
    assert [scores(result) for result in results] == [[-step for step in range(18)]] * 8 + [
        [-step for step in range(17)]
    ]


HYPOTHESES = st.lists(
    st.tuples(st.integers(0, 40), st.lists(st.sampled_from(["a", "very", "Thank", "zzyzx", "</s>", "."]), max_size=6)),
    max_size=12,
).map(lambda pairs: [" ".join([*LONG.split()[:shared], *rest]) for shared, rest in pairs])


class ChaoticBackend:
    """Scores that depend on all that was read, in float64 and whatever else is in the batch."""

    name, device = "onnx", "cpu"

    def run(self, graph, inputs, outputs):
        state, scores = inputs["hidden"].astype(np.float64), np.zeros(inputs["tokens"].shape)
        for step in range(scores.shape[1]):
            following = (state * 997 + inputs["tokens"][:, step, None] / 7 + 0.1) % 1
            state = np.where(step < inputs["lengths"][:, None], following, state)
            scores[:, step] = -((state[0, :, 0] * 31 + inputs["targets"][:, step] / 3) % 1)
        return [scores, state, inputs["cell"]]


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=HYPOTHESES)
def test_shared_beginnings_change_no_score(counting, tokenizer, texts):
    model = LanguageModel(counting[0].manifest, tokenizer, ChaoticBackend())
    assert model.score(texts) == [score for text in texts for score in model.score([text])]


def test_a_score_query_is_as_long_as_its_words_and_the_end(counting):
    assert counting[0].score_query("a b").length == 3


def test_a_next_words_query_begins_with_a_sentence_end(counting):
    query = counting[0].next_words_query("a b", 1)
    assert (query.tokens, query.length) == ((1, 2, 3), 3)


# ---- next words ----


def test_thank_you_very_much(model):
    assert model.next_words(["thank you very"])[0].words[0].word == "much"


@pytest.mark.parametrize("context", [*TEXTS, *RUBBISH])
def test_the_distribution_sums_to_one(model, context):
    (row,) = model.distribution([context])
    assert np.exp(row.astype(np.float64)).sum() == pytest.approx(1, abs=CLOSE)


@pytest.mark.parametrize("context", TEXTS)
def test_all_words_are_the_distribution(model, tokenizer, context):
    (result,) = model.next_words([context], model.vocab_size)
    whole = math.fsum([*(word.probability for word in result.words), result.unknown_probability])
    assert whole == pytest.approx(1, abs=CLOSE)
    assert len(result.words) == model.vocab_size - 1
    assert log_probabilities(result) == sorted(log_probabilities(result), reverse=True)
    table = {tokenizer.word(index): value for index, value in enumerate(model.distribution([context])[0].tolist())}
    found = {word.word: word.log_probability for word in result.words} | {"<unk>": result.unknown_log_probability}
    assert found == pytest.approx(table, abs=CLOSE)


def test_unknown_words_of_the_context_are_named(model):
    known, unknown, mixed = model.next_words(["we had a very", "Zzyzx", "Tom met Zzyzx and QWRT zzyzx ."], 3)
    assert (known.unknown, unknown.unknown, mixed.unknown) == ((), ("Zzyzx",), ("Zzyzx", "QWRT", "zzyzx"))
    (after,) = model.next_words(["zyxwv is"], 3, after=[mixed.prefix])
    assert after.unknown == ("zyxwv",)


def test_the_unknown_word_is_never_listed(model):
    """After these contexts it is among the most probable words."""
    for found in model.next_words(["his name is", "the capital of", "she lives in"], 20):
        assert len(found.words) == 20
        assert "<unk>" not in [word.word for word in found.words]
        assert found.unknown_log_probability > found.words[-1].log_probability


def test_a_graph_that_does_not_tell_the_probability_of_unknown_words_is_sorted(model, tokenizer):
    content = model.manifest.model_dump(mode="json")
    outputs = content["graphs"]["next_words"]["outputs"]
    content["graphs"]["next_words"]["outputs"] = [each for each in outputs if "unknown" not in each["name"]]
    old = LanguageModel(parse_manifest(content), tokenizer, model.backend)
    for ours, theirs in zip(old.next_words(TEXTS, 5), model.next_words(TEXTS, 5), strict=True):
        assert ours.words == theirs.words
        assert ours.unknown_log_probability == pytest.approx(theirs.unknown_log_probability, abs=CLOSE)


def test_the_sentence_end_is_told_from_words(model):
    (found,) = model.next_words(["thank you very much ."], 3)
    assert [word.sentence_end for word in found.words] == [word.word == "</s>" for word in found.words]
    assert found.words[0].sentence_end
    (score,) = model.score(["a </s>"])
    assert [(token.word, token.unknown, token.sentence_end) for token in score.tokens][-1] == ("</s>", False, True)
    assert sum(token.sentence_end for token in score.tokens) == 1


@pytest.mark.parametrize("context", TEXTS)
def test_entropy_is_that_of_the_whole_distribution(model, context):
    logs = model.distribution([context])[0].astype(np.float64)
    (result,) = model.next_words([context], 1)
    assert result.entropy == pytest.approx(-(np.exp(logs) * logs).sum(), rel=1e-4)


@pytest.mark.parametrize("context", TEXTS)
def test_component_weights_sum_to_one(model, context):
    components = model.next_words([context], 1)[0].components
    assert [c.kernel for c in components] == [kernel.name for kernel in model.manifest.softmax.kernels]
    assert sum(c.weight for c in components) == pytest.approx(1, abs=CLOSE)


def test_fewer_words_are_the_first_of_more(model):
    assert model.next_words(["a"], 3)[0].words == model.next_words(["a"], 50)[0].words[:3]


def test_a_batch_of_mixed_lengths_equals_one_by_one(model):
    contexts = [*TEXTS, LONG, *RUBBISH]
    for context, result in zip(contexts, model.next_words(contexts), strict=True):
        assert result.context == context
        assert_same_next_words(result, model.next_words([context])[0])


def test_queries_of_one_batch_may_want_different_numbers_of_words(model):
    queries = [model.next_words_query(text, top_k) for text, top_k in [("a", 1), ("thank you", 7), ("", 3)]]
    results = model.run_next_words(queries)
    assert [len(result.words) for result in results] == [1, 7, 3]
    assert_same_next_words(results[0], model.next_words(["a"], 1)[0])


def test_long_contexts_are_read_some_positions_at_a_time(model, monkeypatch):
    contexts = ["see you tomorrow and thank you very much", "we had", "a very good idea of the old man"]
    expected, run, shapes = model.next_words(contexts, 3), model.backend.run, []
    monkeypatch.setattr("models.tasks.language_model._RUN_POSITIONS", 6)
    monkeypatch.setattr("models.tasks.language_model._RUN_STEPS", 2)
    monkeypatch.setattr(model.backend, "run", lambda *given: shapes.append(given[1]["tokens"].shape) or run(*given))
    again = model.next_words(contexts, 3)
    assert shapes == [(3, 2), (2, 3), (2, 3), (3, 1)]  # of 9, 3 and 9 tokens, the sentence end before them included
    for found, other in zip(again, expected, strict=True):
        assert [each.word for each in found.words] == [each.word for each in other.words]
        np.testing.assert_allclose(found.prefix.hidden, other.prefix.hidden, atol=1e-5)
        np.testing.assert_allclose(found.prefix.cell, other.prefix.cell, atol=1e-5)


def test_the_distributions_of_a_batch_equal_one_by_one(model):
    rows = np.concatenate([model.distribution([text]) for text in TEXTS])
    np.testing.assert_allclose(model.distribution(TEXTS), rows, atol=CLOSE)


def test_spaces_alone_are_the_empty_context(model):
    empty, spaces = model.next_words(["", " \n\t "])
    assert_same_next_words(empty, spaces)


def test_no_texts_no_results(model):
    assert model.next_words([]) == model.score([]) == model.run_next_words([]) == []
    assert model.next_words([], after=[]) == []
    assert model.distribution([]).shape == (0, model.vocab_size)


# ---- going on from a prefix ----


def test_going_on_equals_reading_the_whole(model):
    before = model.next_words(["thank you", "", LONG], 1)
    rest = ["very", "we had a very good", "a zzyzx"]
    together = ["thank you very", "we had a very good", LONG + " a zzyzx"]
    continued = model.next_words(rest, after=[result.prefix for result in before])
    for result, whole in zip(continued, model.next_words(together), strict=True):
        assert_same_next_words(result, whole)


def test_going_on_word_by_word_equals_reading_the_whole(model):
    (result,) = model.next_words([""])
    for word in LONG.split()[:40]:
        (result,) = model.next_words([word], after=[result.prefix])
    assert_same_next_words(result, model.next_words([" ".join(LONG.split()[:40])])[0])


def test_going_on_from_200_words_costs_one_step(recorded):
    model, backend = recorded
    (read,) = model.next_words([f"{LONG} {LONG}"], 1)
    model.next_words(["very"], after=[read.prefix])
    assert backend.shapes == [(1, 201), (1, 1)]


def test_a_prefix_can_be_used_again(model):
    prefix = model.next_words(["thank you"])[0].prefix
    first, second = (model.next_words(["very"], after=[prefix])[0] for _ in range(2))
    assert first.words == second.words


@pytest.mark.parametrize("text", ["", "  "])
def test_going_on_needs_a_word(model, text):
    prefix = model.next_words(["thank you"])[0].prefix
    with pytest.raises(QueryError, match="a continuation needs at least one word"):
        model.next_words([text], after=[prefix])


@pytest.mark.parametrize("count", [0, 2])
def test_every_context_needs_its_prefix(model, count):
    prefix = model.next_words([""], 1)[0].prefix
    with pytest.raises(ValueError, match="zip"):
        model.next_words(["a"], after=[prefix] * count)


# ---- scores ----


@pytest.mark.parametrize("text", ["", "thank you very much .", "zzyzx is a word", "a long , long way to go"])
def test_the_score_is_the_chain_of_next_words(model, tokenizer, text):
    words, ends = chain(model, tokenizer, text)
    (score,) = model.score([text])
    np.testing.assert_allclose(scores(score), [*words, ends[-1]], atol=1e-4)
    assert score.log_probability == pytest.approx(sum(words) + ends[-1], abs=1e-4 * len(score.tokens))


def test_texts_beyond_the_window_score_as_the_chain_of_next_words(model, tokenizer):
    words, ends = chain(model, tokenizer, LONG)
    lengths = [30, 31, 32, 33, 63, 64, 65, 100]
    results = model.score([" ".join(LONG.split()[:length]) for length in lengths])
    for length, result in zip(lengths, results, strict=True):
        np.testing.assert_allclose(scores(result), [*words[:length], ends[length]], atol=1e-4)


def test_scores_of_mixed_lengths_equal_one_by_one(model):
    texts = [*TEXTS, LONG, *RUBBISH, LONG[:150]]
    for text, result in zip(texts, model.score(texts), strict=True):
        assert result.text == text
        assert_same_score(result, model.score([text])[0])


@quick
@given(texts=HYPOTHESES)
def test_scores_of_hypotheses_equal_one_by_one(model, texts):
    for text, result in zip(texts, model.score(texts), strict=True):
        assert_same_score(result, model.score([text])[0])


def test_unknown_words_are_flagged_and_keep_their_spelling(model):
    (score,) = model.score(["Thank you , Zzyzx 😀 !"])
    assert [(token.word, token.unknown) for token in score.tokens] == [
        ("Thank", False),
        ("you", False),
        (",", False),
        ("Zzyzx", True),
        ("😀", True),
        ("!", False),
        ("</s>", False),
    ]


@pytest.mark.parametrize("text", ["</s>", "a </s> b", "</s></s>", "＜/s＞", "</S>"])
def test_text_never_ends_a_sentence(model, tokenizer, text):
    assert tokenizer.end_id not in model.score_query(text).tokens
    assert tokenizer.end_id not in model.next_words_query(text).tokens[1:]


def test_token_ids_are_scored_as_their_text(counting):
    model, _ = counting
    text = model.score_query("a b a")
    found = model.score_token_query(text.tokens)
    assert (found.tokens, found.words) == (text.tokens, text.words)
    with pytest.raises(QueryError, match="token ids must be from 0"):
        model.score_token_query([model.vocab_size])
