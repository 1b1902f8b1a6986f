"""Tests of the language model: hand-computed results, a backend that counts, then the bundled model.

Shapes: `B` sequences, `T` time steps, `V` words.
"""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from models import LanguageModel, QueryError, TextTooLongError
from models.tasks.language_model import NextWord, ScoreQuery, TokenScore
from models.text.prefix_cache import count, packed, unpacked
from models.text.tokenization import WordTokenizer

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
    assert math.fsum(word.probability for word in result.words) == pytest.approx(1, abs=CLOSE)
    assert log_probabilities(result) == sorted(log_probabilities(result), reverse=True)
    table = {tokenizer.word(index): value for index, value in enumerate(model.distribution([context])[0].tolist())}
    assert {word.word: word.log_probability for word in result.words} == pytest.approx(table, abs=CLOSE)


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


# ---- continuing from cached prefixes ----


@pytest.fixture
def caching(model, tokenizer):
    """The bundled model with an empty prefix cache."""
    caching = LanguageModel(model.manifest, tokenizer, model.backend)
    caching.use_cache(1 << 20)
    return caching


def asked(model, context, top_k, truncate):
    """Return the tokens that a query reads and its result, or the error."""
    try:
        query = model.next_words_query(context, top_k, truncate=truncate)
    except QueryError as error:
        return type(error), str(error)
    if query.known is None:
        assert query.read == packed(unpacked(query.read)[: count(query.read) - query.length]) + packed(query.tokens)
    result = model.result(query, model.run_next_words(query.parts()))
    assert result.context == context
    assert len(result.words) == top_k
    return query.read, result


WORDS = st.sampled_from(["a", "very", "Thank", "you", "zzyzx", "’", "\u0301", "Σ", "b.", "9", "\n", "", " ", "x" * 64])
GROWING = st.lists(st.tuples(st.sampled_from([" ", " ", "", "\t"]), WORDS | st.text(max_size=3)), max_size=12)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(GROWING, st.lists(st.tuples(st.integers(0, 12), st.sampled_from([1, 3]), st.booleans()), max_size=8))
def test_a_cache_changes_no_answer(short_model, tokenizer, pieces, questions):
    """Of texts that begin alike, are spelled alike, are too long, or are cut."""
    caching = LanguageModel(short_model.manifest, tokenizer, short_model.backend)
    caching.use_cache(1 << 20)
    for length, top_k, truncate in questions:
        context = "".join(space + word for space, word in pieces[:length])
        known, plain = (asked(each, context, top_k, truncate) for each in (caching, short_model))
        assert known[0] == plain[0]
        if isinstance(plain[0], bytes):
            assert_same_next_words(known[1], plain[1])
        else:
            assert known == plain


def test_only_what_was_added_is_tokenized(caching, monkeypatch):
    text, split = f"{LONG} and", []
    query = caching.next_words_query(LONG, 3)
    caching.result(query, caching.run_next_words([query]))
    monkeypatch.setattr(WordTokenizer, "split", lambda self, text: split.append(text) or ([2], [text]))
    query = caching.next_words_query(text, 3)
    assert (split, query.length, count(query.read)) == ([" and"], 1, 1 + 101)
    caching.next_words_query(f"{LONG}  ", 3)
    assert split == [" and", "  "]


def test_what_a_tokenizer_makes_of_spaces_has_to_be_known(model):
    """`a b` is one word here, so that it does not begin with `a`."""
    tiny = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, "a": 2, "a b": 3}, unk_token="<unk>"))
    odd = LanguageModel(model.manifest, WordTokenizer(tiny), model.backend)
    odd.use_cache(1 << 20)
    for text, token in (("a", 2), ("a b", 3), ("a b", 3)):
        query = odd.next_words_query(text, 3)
        assert query.tokens == (1, token)
        odd.result(query, model.next_words([text], 3))
    assert query.known is not None


def test_a_text_that_was_cut_is_no_beginning(short_model, tokenizer):
    caching, text = LanguageModel(short_model.manifest, tokenizer, short_model.backend), "b " * 9
    caching.use_cache(1 << 20)
    caching.result(caching.next_words_query(text, truncate=True), short_model.next_words([text], truncate=True))
    assert len(caching._cache) == 1
    assert caching._cache.beginning(text) is None


@pytest.mark.parametrize("context", ["a\udfffb", "thank you \udfff"])
def test_half_a_surrogate_pair_is_found_behind_what_is_known(caching, context):
    query = caching.next_words_query("thank you")
    caching.result(query, caching.run_next_words([query]))
    with pytest.raises(QueryError, match="surrogate"):
        caching.next_words_query(context)


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


# ---- limits and rubbish ----


@pytest.mark.parametrize("beyond", [-1, 0, "V+1"])
def test_top_k_out_of_range(model, beyond):
    top_k = model.vocab_size + 1 if beyond == "V+1" else beyond
    with pytest.raises(QueryError, match=f"between 1 and the vocabulary's {model.vocab_size}, not {top_k}"):
        model.next_words(["a"], top_k)


@pytest.mark.parametrize("call", ["next_words", "score", "distribution"])
def test_one_string_is_no_list(model, call):
    with pytest.raises(TypeError, match="not one string"):
        getattr(model, call)("thank you very")


@pytest.mark.parametrize("call", ["next_words", "score", "distribution"])
@pytest.mark.parametrize("text", [5, None, b"a", ["a"]])
def test_what_is_no_text_is_a_type_error(model, call, text):
    with pytest.raises(TypeError):
        getattr(model, call)([text])


@pytest.mark.parametrize("call", ["next_words", "score", "distribution"])
def test_half_a_surrogate_pair_is_the_fault_of_the_query(model, call):
    with pytest.raises(QueryError, match="surrogate"):
        getattr(model, call)(["a\udfffb"])


def test_texts_at_the_limit_are_read(model):
    text = "a " * model.manifest.config.limits.max_tokens
    assert len(model.score([text])[0].tokens) == model.manifest.config.limits.max_tokens + 1
    assert len(model.next_words([text], 1)[0].words) == 1


@pytest.mark.parametrize("call", ["next_words", "score", "distribution"])
def test_too_many_tokens(short_model, call):
    with pytest.raises(TextTooLongError, match="9 tokens; the model's limit is 8") as caught:
        getattr(short_model, call)(["a " * 9])
    assert (caught.value.length, caught.value.limit) == (9, 8)


@pytest.mark.parametrize("call", ["next_words", "score", "distribution"])
def test_too_many_characters(short_model, call):
    with pytest.raises(TextTooLongError, match="513 characters; the model's limit is 512"):
        getattr(short_model, call)(["a" * 513])


def test_as_many_characters_as_allowed(short_model):
    assert short_model.score(["a" * 512])[0].tokens[0].unknown


def test_cut_contexts_keep_the_last_words(short_model):
    words = "never read we had a very good time at the"
    (cut,) = short_model.next_words([words], truncate=True)
    (last,) = short_model.next_words([" ".join(words.split()[-8:])])
    assert cut.context == words
    assert_same_next_words(cut, last)


def test_texts_of_too_many_characters_are_cut_too(short_model):
    words = "thank you very much for all the time"
    filler = " ".join("b" * 9 for _ in range(60))
    assert [t.word for t in short_model.score([f"{words} {filler}"], truncate=True)[0].tokens[:-1]] == words.split()
    query = short_model.next_words_query(f"{filler} {words}", truncate=True)
    assert query.tokens == short_model.next_words_query(words).tokens


def test_cut_texts_keep_the_first_words(short_model):
    score = short_model.score(["a b c d e f g h i j"], truncate=True)[0]
    assert [token.word for token in score.tokens] == [*"abcdefgh", "</s>"]


def test_short_texts_are_not_cut(short_model):
    assert_same_score(*(short_model.score(["thank you"], truncate=cut)[0] for cut in (False, True)))
    assert_same_next_words(*(short_model.next_words(["thank you"], truncate=cut)[0] for cut in (False, True)))


def test_a_cut_continuation_keeps_its_last_words(short_model):
    prefix = short_model.next_words(["thank you"])[0].prefix
    words = "never read we had a very good time at the"
    (cut,) = short_model.next_words([words], after=[prefix], truncate=True)
    (last,) = short_model.next_words([" ".join(words.split()[-8:])], after=[prefix])
    assert_same_next_words(cut, last)


@quick
@given(context=st.text(max_size=60))
def test_any_text_has_a_distribution(model, context):
    (result,) = model.next_words([context], 3)
    assert all(value <= 0 for value in log_probabilities(result))
    assert 0 <= result.entropy <= math.log(model.vocab_size) + CLOSE
    assert math.isfinite(result.entropy)


@quick
@given(texts=st.lists(st.text(max_size=60), max_size=5))
def test_any_texts_have_finite_scores(model, texts):
    for text, result in zip(texts, model.score(texts), strict=True):
        assert result.text == text
        assert (result.tokens[-1].word, result.tokens[-1].unknown) == ("</s>", False)
        assert all(math.isfinite(value) and value <= 0 for value in scores(result))
        assert result.perplexity >= 1


@quick
@given(text=st.text(max_size=2000), top_k=st.integers())
def test_any_query_is_bounded_or_refused(short_model, text, top_k):
    try:
        query = short_model.next_words_query(text, top_k)
    except QueryError:
        query = short_model.next_words_query(text, truncate=True)
    assert query.length <= 9
    assert short_model.score_query(text, truncate=True).length <= 9


def test_four_threads_get_the_answers_of_one(model):
    contexts = [f"{text} {word}" for text in TEXTS for word in ("a", "the", "very")]

    def answer(context):
        return model.next_words([context])[0], model.score([context])[0]

    alone = [answer(context) for context in contexts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(answer, contexts * 4))
    for (words, score), (expected_words, expected_score) in zip(together, alone * 4, strict=True):
        assert_same_next_words(words, expected_words)
        assert_same_score(score, expected_score)
