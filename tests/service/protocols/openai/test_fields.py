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
    ],
)
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(ValidationError):
        CompletionFields(prompt="a", **{name: value})


def test_fields_that_change_nothing_are_ignored_and_others_refused():
    CompletionFields(prompt="a", user="me", best_of=1, suffix=None, logit_bias={}, presence_penalty=0.0).check()
    for name, value in {"best_of": 2, "suffix": "x", "logit_bias": {"1": 1}, "frequency_penalty": 0.5}.items():
        with pytest.raises(QueryError, match=name):
            CompletionFields(prompt="a", **{name: value}).check()


def test_seeds_differ_by_prompt_and_choice():
    fields = CompletionFields(prompt=["a", "b"], n=2, seed=-7)
    assert fields.seeds() == fields.seeds()
    assert len(set(fields.seeds())) == 4
    assert CompletionFields(prompt="a").seeds() != CompletionFields(prompt="a").seeds()
