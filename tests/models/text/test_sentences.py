"""Tests of cutting texts into sentences."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.text.sentences import sentences_of

LETTERS = "aBé中🙂\u0301. !?。！…'\"()[]1\n\r\t\x0b\x1c\x85\xa0\u2028\u3000\x00"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" ", [" "]),
        ("Hello.  World!\n\nNew.", ["Hello.  ", "World!", "\n\n", "New."]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("Frau Dr. A.\xa0Merkel kam. Sie ging.", ["Frau Dr. A.\xa0Merkel kam. ", "Sie ging."]),
    ],
)
def test_sentences_by_hand(text, sentences):
    assert sentences_of(text, "de") == sentences


def test_long_texts_are_cut_where_short_ones_are():
    sentence = 'Frau Dr. A. Merkel sagte: "Das ist gut." Sie ging.\n\n'
    assert sentences_of(sentence * 600, "de") == sentences_of(sentence, "de") * 600


@pytest.mark.parametrize("text", ["\n" * 20_481, "a\n\n" * 7000, "«" * 100_000, "Wort " * 5000, "ab" * 6000 + ". Ja."])
def test_long_texts_without_boundaries_are_kept_whole_and_cut_in_little_time(text):
    started = time.process_time()
    sentences = sentences_of(text, "de")
    assert "".join(sentences) == text
    assert time.process_time() - started < 1.0
    if text.startswith(("«", "W")):
        assert sentences == [text]


@given(text=st.text(LETTERS, max_size=30) | st.text(max_size=30), language=st.sampled_from(["de", "en", "zh", "xx"]))
@example(text="A.\u3000b", language="en")
@example(text="Dr. B.\u2028C.\x85D", language="de")
def test_sentences_joined_are_the_text(text, language):
    sentences = sentences_of(text, language)
    assert "".join(sentences) == text
    assert all(sentences)
