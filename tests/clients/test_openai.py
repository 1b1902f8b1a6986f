"""The package `openai` against a server."""

import openai
import pytest

from tests.clients.conftest import KEY


@pytest.fixture(scope="module")
def client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none is needed", max_retries=0) as found:
        yield found


def test_models(client):
    assert "next-word" in [each.id for each in client.models.list()]
    found = client.models.retrieve("next-word")
    assert (found.id, found.object, found.owned_by) == ("next-word", "model", "softserve")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")


def test_a_completion(client):
    fields = {"model": "next-word", "prompt": "we had a very", "max_tokens": 6, "seed": 3}
    found = client.completions.create(**fields, n=2, logprobs=2)
    assert [each.index for each in found.choices] == [0, 1]
    one = found.choices[0]
    assert one.finish_reason in ("stop", "length")
    assert len(one.logprobs.token_logprobs) == len(one.logprobs.tokens) == len(one.logprobs.top_logprobs)
    assert client.completions.create(**fields).choices[0].text == one.text
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_penalties_biases_and_the_best_of_several(client):
    fields = {"model": "next-word", "prompt": "we had a very", "max_tokens": 6, "seed": 3}
    found = client.completions.create(
        **fields,
        best_of=4,
        n=2,
        frequency_penalty=0.5,
        presence_penalty=0.5,
        logit_bias={"5": -100},
        extra_body={"prompt_logprobs": 1},
    )
    assert [each.index for each in found.choices] == [0, 1]
    first, *others = found.choices[0].prompt_logprobs
    assert first is None
    assert [each["rank"] for entries in others for each in entries.values()][-1] >= 1
    assert found.usage.completion_tokens > 2 * 6 or any(each.finish_reason == "stop" for each in found.choices)


def test_a_stream(client):
    fields = {"model": "next-word", "prompt": [[1, 5]], "max_tokens": 6, "seed": 3, "temperature": 0.5, "top_p": 0.9}
    whole = client.completions.create(**fields).choices[0]
    pieces = [each.choices[0] for each in client.completions.create(**fields, stream=True)]
    assert "".join(each.text for each in pieces) == whole.text
    assert pieces[-1].finish_reason == whole.finish_reason


def test_errors_are_the_client_s(client, closed):
    with pytest.raises(openai.BadRequestError, match="presence_penalty"):
        client.completions.create(model="next-word", prompt="a", presence_penalty=3)
    with pytest.raises(openai.BadRequestError, match="suffix is not supported"):
        client.completions.create(model="next-word", prompt="a", suffix="b")
    with pytest.raises(openai.NotFoundError, match="unknown model"):
        client.completions.create(model="gpt", prompt="a")
    with pytest.raises(openai.NotFoundError, match="not supported"):
        client.chat.completions.create(model="next-word", messages=[{"role": "user", "content": "Hallo"}])
    with openai.OpenAI(base_url=f"{closed}/v1", api_key="wrong", max_retries=0) as other:
        with pytest.raises(openai.AuthenticationError):
            other.models.list()
        with pytest.raises(openai.AuthenticationError):
            other.completions.create(model="next-word", prompt="a")
        assert other.with_options(api_key=KEY).completions.create(model="next-word", prompt="a", max_tokens=1).choices


def test_a_deadline_is_not_tried_again(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=2) as client:
        with pytest.raises(openai.InternalServerError) as found:
            client.completions.create(
                model="next-word", prompt=["a"] * 50, max_tokens=200, extra_headers={"X-Request-Timeout-Ms": "1"}
            )
        assert found.value.status_code == 504
        assert found.value.request.headers["x-stainless-retry-count"] == "0"
