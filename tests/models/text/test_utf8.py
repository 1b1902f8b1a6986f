"""Tests of the automaton of UTF-8 over tokens."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.utf8 import START, Utf8Tokens

BYTES = Utf8Tokens([bytes([value]) for value in range(256)])


def state_after(tokens: Utf8Tokens, ids: list[int]) -> int:
    state = np.array(START, np.int8)
    for token in ids:
        state = tokens.after(state, np.array(token))
    return int(state)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (b"a", True),
        ("é€🙂\u0800\ud7ff\ue000\U0010ffff\ufffc".encode(), True),
        (b"\xe2\x82", False),
        (b"\xf0\x9f\x99", False),
    ],
)
def test_text_ends_between_characters(text: bytes, whole: bool) -> None:
    state = state_after(BYTES, list(text))
    assert BYTES.possible(np.array(state))
    assert (state == START) == whole


@pytest.mark.parametrize(
    "text",
    [
        b"\x80",
        b"a\xbf",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",  # overlong
        b"\xed\xa0\x80",  # half of a surrogate pair
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",  # beyond U+10FFFF
        b"\xf5",
        b"\xff",
        b"\xe2\x82a",
        b"\xef\xbf\xbd",  # U+FFFD
        b"\xef\xbf\xbd\xbd",
    ],
)
def test_what_is_not_text_leads_nowhere(text: bytes) -> None:
    assert not BYTES.possible(np.array(state_after(BYTES, list(text))))


@given(st.binary(max_size=6))
def test_bytes_lead_between_characters_where_they_are_text(content: bytes) -> None:
    text = content.decode(errors="replace")
    between = state_after(BYTES, list(content)) == START
    assert between == (not {"\ufffd", "\ufffe", "\uffff"} & set(text))


def test_tokens_of_several_bytes_by_hand() -> None:
    tokens = Utf8Tokens([b"", b"a\xe2", b"\x82\xac", b"\x82", "ß".encode()])
    states = tokens.after(np.full(5, START, np.int8), np.arange(5))
    assert tokens.possible(states).tolist() == [True, True, False, False, True]
    assert states[0] == states[4] == START
    assert state_after(tokens, [1, 2, 4]) == START
    assert not tokens.possible(np.array(state_after(tokens, [1, 0]))), "a special token within a character"
    assert tokens.possible(np.array(state_after(tokens, [1, 3])))
    assert [tokens.whole(ids) for ids in ([], [4], [4, 1], [4, 1, 2, 1], [1, 3], [1, 2, 3])] == [0, 1, 1, 3, 0, 2]


def test_spellings_of_vocabularies() -> None:
    level = Utf8Tokens.of_byte_level([None, "Ġa", "â", "Ĥ", "¬"])
    assert state_after(level, [0, 1, 2, 3, 4]) == START
    fallback = Utf8Tokens.of_byte_fallback([None, "▁a", "<0xE2>", "<0x82>", "<0xAC>"])
    assert state_after(fallback, [0, 1, 2, 3, 4]) == START
    for tokens, length in itertools.product((level, fallback), (3, 4)):
        assert state_after(tokens, [0, 1, 2, 3, 4][:length]) != START
