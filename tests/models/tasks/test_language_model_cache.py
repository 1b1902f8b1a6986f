"""Tests of the prefix cache of language models."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from models import LanguageModel, QueryError
from models.text.prefix_cache import count, packed, unpacked
from models.text.tokenization import WordTokenizer
from tests.models.tasks.test_language_model import LONG, assert_same_next_words

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
    again, whole = (caching.next_words_query(each, truncate=True) for each in (text, "b " * 8))
    assert again.known is not None
    assert (again.known.truncated, whole.known.truncated) == (1, None)


@pytest.mark.parametrize("context", ["a\udfffb", "thank you \udfff"])
def test_half_a_surrogate_pair_is_found_behind_what_is_known(caching, context):
    query = caching.next_words_query("thank you")
    caching.result(query, caching.run_next_words([query]))
    with pytest.raises(QueryError, match="surrogate"):
        caching.next_words_query(context)


# ---- salts ----


def ask(model, context):
    query = model.next_words_query(context, 3)
    return query, model.result(query, model.run_next_words(query.parts()))


def test_a_model_finds_what_was_asked_with_its_salt_only(caching):
    one, other = caching.with_cache_salt("one"), caching.with_cache_salt("other")
    first, result = ask(one, "we had a very")
    assert first.known is None
    for model in (other, caching):
        assert model.next_words_query("we had a very", 3).known is None
        assert model.next_words_query("we had a very good", 3).after is None
    assert one.next_words_query("we had a very", 3).known is not None
    assert one.next_words_query("we had a very good", 3).after is result.prefix


def test_the_model_without_a_salt_is_not_changed(caching):
    salted = caching.with_cache_salt("one")
    ask(caching, "thank you very")
    assert caching.next_words_query("thank you very", 3).known is not None
    assert salted.next_words_query("thank you very", 3).known is None


def test_models_without_a_cache_ignore_a_salt(model):
    query, result = ask(model.with_cache_salt("one"), "we had a")
    assert result.words == model.run_next_words([query])[0].words
