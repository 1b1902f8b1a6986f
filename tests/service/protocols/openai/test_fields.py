"""Checked fields of requests for completions."""

import pytest
from pydantic import ValidationError

from models import QueryError
from service.protocols.openai.fields import CompletionFields


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]]), ([[]], [[]])],
)
def test_prompts_have_four_forms(prompt, expected):
    assert CompletionFields(prompt=prompt).prompt == expected


@pytest.mark.parametrize("prompt", [[], 1, None, ["a", 1], [1, "a"], [[1], "a"], [["a"]], [1.5], [True], {"a": 1}])
def test_other_prompts_are_refused(prompt):
    with pytest.raises(ValidationError, match="must be a text, a list of texts"):
        CompletionFields(prompt=prompt)


def test_null_is_the_default():
    names = ("max_tokens", "temperature", "top_p", "n", "seed", "stop", "stream", "logprobs", "echo", "stream_options")
    names += ("frequency_penalty", "presence_penalty", "logit_bias", "best_of", "prompt_logprobs", "suffix")
    assert CompletionFields(prompt="a", **dict.fromkeys(names)) == CompletionFields(prompt="a")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", -1),
        ("temperature", 2.5),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("n", 0),
        ("n", 129),
        ("logprobs", 21),
        ("stop", 1),
        ("stop", [1]),
        ("stop", ["a"] * 65),
        ("stop", "a" * 1001),
        ("stop", ["a" * 500, "b" * 501]),
        ("seed", "x"),
        ("frequency_penalty", 2.1),
        ("presence_penalty", -2.1),
        ("presence_penalty", float("nan")),
        ("best_of", 0),
        ("best_of", 129),
        ("prompt_logprobs", -1),
        ("prompt_logprobs", 21),
        ("logit_bias", [1]),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"01": 1}),
        ("logit_bias", {"\u0661": 1}),
        ("logit_bias", {"1" * 11: 1}),
        ("logit_bias", {"1": 100.5}),
        ("logit_bias", {"1": float("nan")}),
        ("logit_bias", {"1": True}),
        ("logit_bias", {"1": "5"}),
        ("logit_bias", {str(token): 1 for token in range(301)}),
    ],
)
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(ValidationError):
        CompletionFields(prompt="a", **{name: value})


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("suffix is not supported", {"suffix": "x"}),
        ("best_of must be at least n, 3, not 2", {"n": 3, "best_of": 2}),
        ("best_of is above n", {"stream": True, "best_of": 2}),
        ("prompt_logprobs are not available", {"stream": True, "prompt_logprobs": 0}),
    ],
)
def test_what_is_not_supported_or_not_together_is_refused(message, fields):
    with pytest.raises(QueryError, match=message):
        CompletionFields(prompt="a", **fields).check()


def test_fields_without_effect_are_accepted():
    CompletionFields(prompt="a", user="me", best_of=1, suffix="", logit_bias={}, presence_penalty=0.0).check()
    CompletionFields(prompt="a", n=2, best_of=2, stream=True).check()


def test_biases_are_numbers_by_token():
    many = {str(token): 1 for token in range(300)}
    assert len(CompletionFields(prompt="a", logit_bias=many).logit_bias) == 300
    assert CompletionFields(prompt="a", logit_bias={"0": -100, "17": 2.5}).logit_bias == {0: -100.0, 17: 2.5}


@pytest.mark.parametrize(
    ("fields", "explain"),
    [
        ({"logprobs": 3}, 0),
        ({"logprobs": 3, "echo": True}, 3),
        ({"prompt_logprobs": 0}, 1),
        ({"prompt_logprobs": 2, "logprobs": 3, "echo": True}, 3),
        ({"prompt_logprobs": 4, "logprobs": 3, "echo": True}, 4),
    ],
)
def test_prompts_are_explained_as_much_as_they_are_shown(fields, explain):
    assert CompletionFields(prompt="a", **fields).explain == explain


def test_seeds_differ_by_prompt_and_choice():
    fields = CompletionFields(prompt=["a", "b"], n=2, seed=-7)
    assert fields.seeds() == fields.seeds()
    assert len(set(fields.seeds())) == 4
    assert CompletionFields(prompt="a").seeds() != CompletionFields(prompt="a").seeds()
    more = CompletionFields(prompt=["a", "b"], n=2, best_of=3, seed=-7).seeds()
    assert set(fields.seeds()) < set(more)
    assert len(set(more)) == 6
