"""Completions over HTTP: scores, sampling, streams, limits."""

import asyncio
import contextlib
import json
import math

import numpy as np
import pytest

from service.engine.batcher import DeadlineExceeded
from service.engine.client import Begun
from service.protocols.openai.completions import _in_turns
from tests.support.ranks import is_rank


def complete(client, **fields):
    answer = client.post("/v1/completions", json={"model": "next-word", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client, status, headers=None, **fields):
    answer = client.post("/v1/completions", json=fields, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()["error"]["message"]


def ids_of(client, text):
    return client.post("/tokenize", json={"prompt": text}).json()["tokens"]


def streamed(client, **fields):
    answer = client.post("/v1/completions", json={"stream": True, **fields})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def test_echoed_log_probabilities_are_those_of_score(client):
    text = "we had a very good time ."
    expected = [
        each["log_probability"] for each in client.post("/v1/score", json={"text": text}).json()["results"][0]["tokens"]
    ]
    for logprobs in (0, 1, 5):
        for prompt in (text, ids_of(client, text)):
            found = complete(client, prompt=prompt, echo=True, logprobs=logprobs, max_tokens=0)["choices"][0]
            values = found["logprobs"]["token_logprobs"]
            assert values[0] is None
            assert values[1:] == pytest.approx(expected[1:-1], rel=1e-4, abs=1e-5)
            assert found["text"] == text
    with_end = complete(client, prompt=ids_of(client, f"</s>{text}</s>"), echo=True, logprobs=0, max_tokens=0)
    values = with_end["choices"][0]["logprobs"]["token_logprobs"]
    assert values[1:] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_there_is_an_entry_for_every_token_and_the_same_number_among_the_best(client):
    prompt = ids_of(client, "</s> i do not know what xyzzyx")
    found = complete(client, prompt=[prompt, prompt], echo=True, logprobs=1, max_tokens=1, temperature=0, seed=1234)
    for choice in found["choices"]:
        logged = choice["logprobs"]
        assert len(logged["token_logprobs"]) == len(logged["tokens"]) == len(prompt) + 1
        for value, best in list(zip(logged["token_logprobs"], logged["top_logprobs"], strict=True))[1:]:
            assert value in best.values()
            assert value <= max(best.values())
        for token, start in zip(logged["tokens"], logged["text_offset"], strict=True):
            if token != " </s>":
                assert choice["text"][start : start + len(token)] == token
    assert found["usage"] == {
        "prompt_tokens": 2 * len(prompt),
        "completion_tokens": 2,
        "total_tokens": 2 * len(prompt) + 2,
    }


def test_greedy_completions_are_the_most_probable_words(client):
    text = "we had a very"
    for _ in range(4):
        (best, *_) = client.post("/v1/next-word", json={"context": text}).json()["results"][0]["words"]
        found = complete(client, prompt=text, max_tokens=1, temperature=0)["choices"][0]
        if best["sentence_end"]:
            assert (found["text"], found["finish_reason"]) == ("", "stop")
            return
        assert found["text"] == f" {best['word']}"
        text += found["text"]


def test_a_seed_makes_a_text_whatever_else_is_asked(client):
    alone = complete(client, prompt="we had a", seed=5, max_tokens=8)["choices"][0]["text"]
    several = complete(client, prompt=["we had a", "i"], seed=5, max_tokens=8, n=3)["choices"]
    assert [each["index"] for each in several] == list(range(6))
    assert several[0]["text"] == alone
    assert len({each["text"] for each in several}) > 3
    assert complete(client, prompt="we had a", seed=6, max_tokens=8)["choices"][0]["text"] != alone


def greedy(model, text, count, fields):
    """Return the words of a greedy completion and their log-probabilities, by the distributions of the model."""
    words, values, counts = [], [], np.zeros(model.vocab_size)
    bias = np.zeros(model.vocab_size)
    for token, value in fields.get("logit_bias", {}).items():
        bias[int(token)] = value
    for _ in range(count):
        row = model.distribution([text])[0].astype(np.float64)
        row[model.config.special_tokens.unknown] = -math.inf
        penalties = fields.get("frequency_penalty", 0) * counts + fields.get("presence_penalty", 0) * (counts > 0)
        token = int(np.argmax(row + bias - penalties))
        counts[token] += 1
        values.append(row[token])
        words.append(model.spelled([token])[0])
        if token == model.config.special_tokens.end:
            break
        text += f" {words[-1]}"
    return words, values


@pytest.mark.parametrize(
    "penalties", [{}, {"frequency_penalty": 1.5}, {"presence_penalty": 2.0, "frequency_penalty": 0.5}]
)
def test_penalties_and_biases_are_those_of_openai_and_log_probabilities_those_of_the_model(client, library, penalties):
    end, very = ids_of(client, "</s>")[0], ids_of(client, "very")[0]
    fields = {"logit_bias": {str(very): 6.5, str(end): -100}, **penalties}
    words, values = greedy(library, "we had a very", 12, fields)
    found = complete(client, prompt="we had a very", max_tokens=12, temperature=0, logprobs=0, **fields)["choices"][0]
    assert found["text"] == "".join(f" {word}" for word in words)
    assert found["logprobs"]["token_logprobs"] == pytest.approx(values, abs=1e-4)
    assert words.count("very") >= (2 if penalties else 4)
    assert words.count("very") < 12 or not penalties


def test_a_bias_selects_and_bans_tokens(client):
    one, other = ids_of(client, "house cat")
    found = complete(client, prompt="we had a", max_tokens=5, seed=1, logit_bias={str(one): 100, str(other): 90})
    assert found["choices"][0]["text"] == " house" * 5
    unknown = complete(client, prompt="we had a", max_tokens=5, temperature=0, logit_bias={"0": 100})
    assert "<unk>" not in unknown["choices"][0]["text"]


def test_the_best_of_several_have_the_largest_log_probability_per_token(client):
    fields = {"prompt": ["we had a", "i"], "seed": 5, "max_tokens": 8, "logprobs": 0, "echo": True}
    every = complete(client, **fields, n=6)
    best = complete(client, **fields, n=2, best_of=6)
    assert [each["index"] for each in best["choices"]] == list(range(4))
    for prompt in range(2):
        read = len(fields["prompt"][prompt].split())
        group = every["choices"][6 * prompt : 6 * prompt + 6]
        group.sort(key=lambda each: -np.mean(each["logprobs"]["token_logprobs"][read:]))
        chosen = best["choices"][2 * prompt : 2 * prompt + 2]
        assert [each["text"] for each in chosen] == [each["text"] for each in group[:2]]
        assert [each["logprobs"] for each in chosen] == [each["logprobs"] for each in group[:2]]
    assert best["usage"] == every["usage"]
    assert [each["text"] for each in complete(client, **fields, n=6, best_of=6)["choices"]] == [
        each["text"] for each in every["choices"]
    ]


def test_tokens_of_prompts_have_their_ranks(client, library):
    text = "we had xyzzyx time"
    ids = ids_of(client, text)
    for count in (0, 3):
        found = complete(client, prompt=[ids, ids[:1]], n=2, prompt_logprobs=count, max_tokens=1, seed=1)["choices"]
        assert [each["prompt_logprobs"] for each in found[2:]] == [[None]] * 2
        assert found[0]["prompt_logprobs"] == found[1]["prompt_logprobs"]
        first, *others = found[0]["prompt_logprobs"]
        assert first is None
        for place, (token, entries) in enumerate(zip(ids[1:], others, strict=True), 1):
            row = library.distribution([" ".join(text.split()[:place])])[0]
            best = np.argsort(-row, kind="stable")[:count].tolist()
            assert list(entries) == list(dict.fromkeys(map(str, [token, *best])))
            for key, entry in entries.items():
                assert entry["logprob"] == pytest.approx(float(row[int(key)]), abs=1e-4)
                assert is_rank(entry["rank"], row, int(key))
                assert entry["decoded_token"] == f" {library.spelled([int(key)])[0]}"
    whole = complete(client, prompt=text, echo=True, logprobs=1, prompt_logprobs=4, max_tokens=0)["choices"][0]
    assert all(len(each) <= 2 for each in whole["logprobs"]["top_logprobs"][1:])
    assert all(len(each) >= 4 for each in whole["prompt_logprobs"][1:])
    assert "prompt_logprobs" not in complete(client, prompt=text, max_tokens=0)["choices"][0]


def test_a_stream_has_the_same_text(client):
    fields = {"prompt": ["we had a", "i"], "seed": 5, "max_tokens": 8, "echo": True, "logprobs": 2, "stop": [" to"]}
    whole = complete(client, **fields)
    events = streamed(client, **fields, stream_options={"include_usage": True})
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == whole["usage"]
    assert [event["usage"] for event in events[:-1]] == [None] * (len(events) - 1)
    for choice in whole["choices"]:
        own = [event["choices"][0] for event in events[:-1] if event["choices"][0]["index"] == choice["index"]]
        assert "".join(each["text"] for each in own) == choice["text"]
        assert [each["finish_reason"] for each in own if each["finish_reason"]] == [choice["finish_reason"]]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert [value for each in own for value in each["logprobs"][name]] == choice["logprobs"][name]
    assert {event["id"] for event in events} == {events[0]["id"]}


def test_a_stream_says_nothing_of_usage_where_nobody_asks_for_it(client):
    assert all("usage" not in event for event in streamed(client, prompt="we had", max_tokens=2, seed=1))


def test_a_stream_of_nothing_ends(client):
    (event,) = streamed(client, prompt="we had", max_tokens=0, echo=True)
    assert (event["choices"][0]["text"], event["choices"][0]["finish_reason"]) == ("we had", "length")
    assert streamed(client, prompt="we had", max_tokens=0) == []


@pytest.mark.parametrize(("error", "status"), [(DeadlineExceeded(), "504"), (ArithmeticError("secret"), "500")])
def test_a_stream_that_fails_is_counted_with_the_status_of_its_failure(client, metric, monkeypatch, error, status):
    compute, calls = Begun.compute, []

    async def failing(begun, operation, queries):
        calls.append(operation)
        if len(calls) == 3:
            raise error
        return await compute(begun, operation, queries)

    monkeypatch.setattr(Begun, "compute", failing)
    name, labels = "softserve_requests_total", {"endpoint": "/v1/completions", "status": status}
    before = metric(client, name, **labels), metric(client, name, endpoint="/v1/completions", status="200")
    fields = {"stream": True, "prompt": "we had", "max_tokens": 8, "seed": 1}
    with contextlib.suppress(ArithmeticError):
        answer = client.post("/v1/completions", json=fields)
        assert answer.status_code == 200
        assert json.loads(answer.text.split("\n\n")[-3].removeprefix("data: "))["error"]["code"] == "timeout"
    after = metric(client, name, **labels), metric(client, name, endpoint="/v1/completions", status="200")
    assert after == (before[0] + 1, before[1])


def test_what_is_refused(client):
    assert "unknown model 'nope'" in refused(client, 404, model="nope", prompt="a")
    assert "suffix is not supported" in refused(client, 400, prompt="a", suffix="b")
    assert "best_of must be at least n" in refused(client, 400, prompt="a", n=3, best_of=2)
    assert "best_of" in refused(client, 400, prompt="a", stream=True, best_of=3)
    assert "prompt_logprobs" in refused(client, 400, prompt="a", stream=True, prompt_logprobs=1)
    assert "logit_bias" in refused(client, 400, prompt="a", logit_bias={"a": 1})
    assert "logit_bias: token ids must be from 0 to" in refused(client, 400, prompt="a", logit_bias={"1000000": 1})
    assert "result items" in refused(client, 400, prompt=["a"] * 2, best_of=100, max_tokens=900)
    assert "result items" in refused(client, 400, prompt=["a " * 50] * 8, n=120, prompt_logprobs=20, max_tokens=0)
    assert "token ids must be from 0" in refused(client, 400, prompt=[10**6])
    assert "max_tokens=999" in refused(client, 400, prompt="a b", max_tokens=999)
    answer = client.post(
        "/v1/completions", content=b'{"prompt": "\\ud800"}', headers={"Content-Type": "application/json"}
    )
    assert "surrogate" in answer.json()["error"]["message"]
    assert "result items" in refused(client, 400, prompt=["a"] * 500, n=2, max_tokens=900, logprobs=20)
    assert refused(client, 504, {"X-Request-Timeout-Ms": "1"}, prompt=["we had"] * 50, max_tokens=500)
    assert "X-Request-Timeout-Ms" in refused(client, 400, {"X-Request-Timeout-Ms": "x"}, prompt="a")
    for path in ("/v1/chat/completions", "/v1/responses"):
        answer = client.post(path, json={})
        assert answer.status_code == 404
        assert "/v1/completions" in answer.json()["error"]["message"]


def test_generated_tokens_are_counted(client, metric):
    name = "softserve_generated_tokens_total"
    before = metric(client, name, model="next-word")
    found = complete(client, prompt="we had", max_tokens=5, seed=1)
    assert metric(client, name, model="next-word") - before == found["usage"]["completion_tokens"]


def test_models_are_listed_with_and_without_the_native_endpoints(client):
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert {"id": "next-word", "object": "model", "owned_by": "softserve"}.items() <= listed["data"][-1].items()
    assert client.get("/v1/models/next-word").json()["id"] == "next-word"
    assert math.isfinite(listed["data"][0]["created"])


def test_other_requests_run_between_the_completions_of_a_step():
    async def run():
        turns, counted = [0], []

        async def others():
            while True:
                turns[0] += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        async for _ in _in_turns(range(200)):
            counted.append(turns[0])
        task.cancel()
        assert len(counted) == 200
        assert turns[0] >= 6
        assert max(counted.count(turn) for turn in counted) <= 32

    asyncio.run(run())
