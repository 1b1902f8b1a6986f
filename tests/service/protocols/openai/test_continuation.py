"""Completions stop where they should, and no part of a stop sequence is streamed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.tasks.language_sampling import Drawn
from service.protocols.openai.continuation import Continuation, _beginning
from service.protocols.openai.fields import CompletionFields
from service.protocols.openai.logged import LoggedToken, log_probabilities

WORDS = ["<unk>", "</s>", "one", "two", "three", "four"]


class Words:
    """A writer of words."""

    end = 1

    def written(self, tokens, *, first):
        texts = [f"{'' if first else ' '}{WORDS[each]}" for each in tokens]
        return [(text, text.encode()) for text in texts]


class Bytes:
    """A writer whose tokens are bytes."""

    end = 0

    def written(self, tokens, *, first):
        return [(bytes([each]).decode(errors="replace"), bytes([each])) for each in tokens]


def grown(tokens, prompt_tokens=1, writer=Words(), **fields):  # noqa: B008
    found = Continuation(0, CompletionFields(prompt="a", **fields), np.random.default_rng(1), (1,), prompt_tokens)
    pieces = []
    for token in tokens:
        if found.finish_reason is None:
            found.add(Drawn(token, -0.5, ((token, -0.5), (1, -2.0)), None), writer)
            pieces.append(found.fresh())
    return found, pieces


def test_a_sentence_end_stops_and_is_no_text():
    found, pieces = grown([2, 3, 1, 4])
    assert (found.text, found.finish_reason, pieces) == (" one two", "stop", [" one", " two", ""])
    assert [each.text for each in found.tokens] == [" one", " two", " </s>"]


def test_the_last_token_is_the_end():
    found, _ = grown([2, 3, 4], max_tokens=2)
    assert (found.text, found.finish_reason) == (" one two", "length")


def test_the_first_word_of_a_text_has_no_space():
    assert grown([2, 3], prompt_tokens=0)[0].text == "one two"


@pytest.mark.parametrize(
    ("stop", "text", "pieces"),
    [
        (["two"], " one ", [" one", " "]),
        (["e tw", "o"], " ", [" "]),
        ([" two three"], " one", [" one", "", ""]),
        (["two four"], " one two three four", [" one", " ", "two three", " four"]),
        (["xyz"], " one two three four", [" one", " two", " three", " four"]),
    ],
)
def test_stop_sequences(stop, text, pieces):
    found, streamed = grown([2, 3, 4, 5], stop=stop, max_tokens=4)
    assert (found.text, streamed) == (text, pieces)
    assert "".join(streamed) == text
    assert found.finish_reason == ("length" if text.endswith("four") else "stop")


@given(st.text("ab", max_size=30), st.text("ab", min_size=1, max_size=10))
def test_the_beginning_of_a_stop_sequence_is_the_longest(text, stop):
    lengths = [length for length in range(min(len(text), len(stop) - 1) + 1) if text.endswith(stop[:length])]
    assert _beginning(text, stop) == max(lengths)


def test_the_query_goes_on_from_what_was_read():
    found, _ = grown([2], temperature=0.7, top_p=0.9, logprobs=3)
    query = found.query()
    assert (query.tokens, query.temperature, query.top_p, query.alternatives) == ((2,), 0.7, 0.9, 3)
    assert query.uniform != found.query().uniform


def test_log_probabilities_have_no_infinity_and_the_token_itself_among_the_best():
    tokens = [
        LoggedToken("a", None),
        LoggedToken(" b", -math.inf, [(" c", -0.1)]),
        LoggedToken(" c", -0.1, [(" c", -0.1)]),
    ]
    found = log_probabilities(tokens, 5, alternatives=True)
    assert found["token_logprobs"] == [None, -9999.0, -0.1]
    assert found["top_logprobs"] == [None, {" c": -0.1, " b": -9999.0}, {" c": -0.1}]
    assert found["text_offset"] == [5, 6, 8]
    assert log_probabilities(tokens, 0, alternatives=False)["top_logprobs"] is None


def test_bytes_become_characters_when_they_are_complete():
    found, pieces = grown([*"aé🙂b".encode()], writer=Bytes())
    assert found.text == "aé🙂b"
    assert pieces == ["a", "", "é", "", "", "", "🙂", "b"]
    found, pieces = grown([*"a🙂".encode()], writer=Bytes(), max_tokens=3)
    assert (found.text, found.finish_reason) == ("a\N{REPLACEMENT CHARACTER}", "length")
    found, pieces = grown([*"aé".encode(), 0], writer=Bytes(), stop=["é"])
    assert (found.text, found.finish_reason, pieces) == ("a", "stop", ["a", "", ""])


def test_the_last_query_says_that_no_other_follows():
    found, _ = grown([2], max_tokens=3)
    assert found.query().goes_on
    found, _ = grown([2, 3], max_tokens=3)
    assert not found.query().goes_on


def test_penalties_are_those_of_generated_tokens():
    fields = {"frequency_penalty": 0.5, "presence_penalty": -0.25, "logit_bias": {"2": 3.0, "5": -100}}
    found, _ = grown([2, 3, 2, 2], **fields)
    assert found.query().adjustments == pytest.approx({2: 3.0 - 3 * 0.5 + 0.25, 3: -0.5 + 0.25, 5: -100.0})
    found, _ = grown([2, 3, 2], logit_bias={"2": 3.0})
    assert found.query().adjustments == {2: 3.0}
    assert grown([2, 3])[0].query().adjustments == {}


def test_a_completion_without_tokens_has_a_mean():
    assert grown([])[0].mean_log_probability == 0.0
    assert grown([2, 3])[0].mean_log_probability == -0.5
