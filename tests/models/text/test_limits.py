"""Tests of checks and truncation of texts."""

import pytest

from models import QueryError, TextTooLongError
from models.text.limits import TextLimit, checked_text, ends, head, several, tail


@pytest.mark.parametrize("text", ["", "a", "🙂", "a\0b", "你好", "\ufffe"])
def test_texts_pass_unchanged(text):
    assert checked_text(text) is text


@pytest.mark.parametrize("text", ["\ud83d", "a\udc80b", "\ude00\ud83d"])
def test_half_of_a_surrogate_pair_is_refused(text):
    with pytest.raises(QueryError, match="half of a surrogate pair"):
        checked_text(text)


@pytest.mark.parametrize("value", [None, 5, b"a", ["a"]])
def test_what_is_no_text_is_a_bug_of_the_caller(value):
    with pytest.raises(TypeError):
        checked_text(value)


def test_one_string_is_not_a_list_of_letters():
    with pytest.raises(TypeError, match="a list of texts"):
        several("ab")
    assert several(["ab"]) == ["ab"]


@pytest.mark.parametrize("items", ["abcdefgh", [1, 2, 3, 4, 5, 6, 7, 8]])
def test_which_items_are_kept(items):
    assert head(items, 3) == items[:3]
    assert tail(items, 3) == items[5:]
    assert ends(items, 5) == items[:1] + items[4:]
    assert tail(items, 0) == head(items, 0) == items[:0]
    for keep in (head, tail, ends):
        assert keep(items, 8) == keep(items, 9) == items


def test_characters_are_limited_before_tokenization():
    limit = TextLimit(2)
    text = "a" * 100 + "b" * 28
    assert limit.characters(text, None) is text
    assert limit.characters(text + "c", tail) == text[1:] + "c"
    with pytest.raises(TextTooLongError, match="the text has 129 characters; the model's limit is 128"):
        limit.characters(text + "c", None)
    with pytest.raises(QueryError, match="surrogate"):
        limit.characters("\ud800", head)


def test_tokens_are_limited_with_those_that_the_tokenizer_adds():
    limit = TextLimit(5, added_tokens=2, noun=" in a sentence")
    assert limit.tokens([1, 2, 3], None) == [1, 2, 3]
    assert limit.tokens([1, 2, 3, 4], head) == [1, 2, 3]
    with pytest.raises(TextTooLongError, match="has 6 tokens in a sentence; the model's limit is 5"):
        limit.tokens([1, 2, 3, 4], None)


@pytest.mark.parametrize(("count", "left_out"), [(0, None), (3, None), (4, 1), (10, 7)])
def test_tokens_left_out_are_counted(count, left_out):
    assert TextLimit(5, added_tokens=2).left_out("a", [0] * count) == left_out


def test_tokens_of_characters_left_out_are_estimated():
    limit = TextLimit(10)
    assert limit.max_characters == 640
    assert limit.left_out("a " * 640, [0] * 320) == 310 + 320
    assert limit.left_out("a" * 641, [0]) == 1
    assert limit.left_out(" " * 6400, []) is None
