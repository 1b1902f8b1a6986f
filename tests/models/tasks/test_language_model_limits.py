"""Tests of the limits of language models, and of invalid texts."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import QueryError, TextTooLongError
from tests.models.tasks.test_language_model import (
    CLOSE,
    TEXTS,
    assert_same_next_words,
    assert_same_score,
    log_probabilities,
    quick,
    scores,
)

# ---- limits and rubbish ----


@pytest.mark.parametrize("top_k", [-1, 0])
def test_less_than_one_word_is_an_error(model, top_k):
    with pytest.raises(QueryError, match=f"top_k must be at least 1, not {top_k}"):
        model.next_words(["a"], top_k)


def test_more_words_than_there_are_are_all_words(model):
    (whole,), (more,) = (model.next_words(["a"], top_k) for top_k in (model.vocab_size - 1, 10**30))
    assert whole.words == more.words
    (scored,) = model.score(["a"], explain=10**30)
    assert [len(token.alternatives) for token in scored.tokens] == [model.vocab_size - 1] * 2
    assert model.score_query("a", explain=10**30).result_items == 2 * model.vocab_size


def test_models_of_words_have_no_stride(model):
    with pytest.raises(QueryError, match="stride is for models of subwords"):
        model.score_query("a", stride=4)


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
    assert (cut.truncated, last.truncated) == (2, None)
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
    assert score.truncated == 2
    assert short_model.score(["a " * 500_000], truncate=True)[0].truncated == 500_000 - 8


def test_short_texts_are_not_cut(short_model):
    assert_same_score(*(short_model.score(["thank you"], truncate=cut)[0] for cut in (False, True)))
    assert_same_next_words(*(short_model.next_words(["thank you"], truncate=cut)[0] for cut in (False, True)))


def test_a_cut_continuation_keeps_its_last_words(short_model):
    prefix = short_model.next_words(["thank you"])[0].prefix
    words = "never read we had a very good time at the"
    (cut,) = short_model.next_words([words], after=[prefix], truncate=True)
    (last,) = short_model.next_words([" ".join(words.split()[-8:])], after=[prefix])
    assert (cut.truncated, last.truncated) == (2, None)
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
