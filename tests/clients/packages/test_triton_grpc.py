"""The package `tritonclient` over gRPC, in its synchronous, asynchronous and streaming forms."""

import asyncio
import contextlib
import queue

import numpy as np
import pytest
import tritonclient.grpc as client
import tritonclient.grpc.aio as aio
from tritonclient.utils import InferenceServerException

TEXTS = ["play some music", "what is the weather like"]


@pytest.fixture(scope="module")
def triton(grpc_address):
    with contextlib.closing(client.InferenceServerClient(grpc_address)) as found:
        yield found


def text_input(texts, module=client):
    found = module.InferInput("text", [len(texts)], "BYTES")
    found.set_data_from_numpy(np.array([each.encode() for each in texts], object))
    return found


def ids_input(ids, datatype="INT64"):
    found = client.InferInput("input_ids", list(ids.shape), datatype)
    found.set_data_from_numpy(ids)
    return found


def labels(found):
    return [row[0].decode() for row in found.as_numpy("label")]


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_texts(triton, post, compression):
    expected = [each["labels"] for each in post("/v1/classify", text=TEXTS)["results"]]
    found = triton.infer("intents", [text_input(TEXTS)], request_id="7", compression_algorithm=compression)
    assert found.get_response().id == "7"
    assert labels(found) == [each[0]["label"] for each in expected]
    values = [[label["probability"] for label in each] for each in expected]
    assert found.as_numpy("probability") == pytest.approx(np.array(values), abs=1e-5)
    assert found.as_numpy("out_of_scope").dtype == bool


def test_requested_outputs_and_classification(triton):
    outputs = [client.InferRequestedOutput("probability", class_count=2), client.InferRequestedOutput("label")]
    found = triton.infer("intents", [text_input(TEXTS)], outputs=outputs)
    assert found.as_numpy("probability").shape == (2, 2)
    assert found.as_numpy("probability")[0][0].decode().endswith(f":{labels(found)[0]}")
    assert found.as_numpy("out_of_scope") is None


def test_token_ids(triton, post):
    ids = np.array([post("/tokenize", prompt="we had a very good time .")["tokens"]])
    expected = post("/v1/score", text="we had a very good time .")["results"][0]["tokens"]
    found = triton.infer("next-word.tokens", [ids_input(ids)]).as_numpy("log_probabilities")
    assert found.dtype == np.float32
    assert found[0] == pytest.approx([each["log_probability"] for each in expected], abs=1e-4)


def test_metadata_statistics_and_repository(triton):
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("intents")
    assert not triton.is_model_ready("nope")
    server = triton.get_server_metadata()
    assert (server.name, "statistics" in server.extensions) == ("softserve", True)
    model = triton.get_model_metadata("intents")
    assert [(each.name, each.datatype, list(each.shape)) for each in model.inputs] == [("text", "BYTES", [-1])]
    assert triton.get_model_config("intents").config.output[0].name == "label"
    before = triton.get_inference_statistics("intents").model_stats[0].inference_count
    triton.infer("intents", [text_input(TEXTS)])
    after = triton.get_inference_statistics("intents").model_stats[0]
    assert after.inference_count == before + 2
    assert after.inference_stats.compute_infer.ns > 0
    assert {each.name for each in triton.get_model_repository_index().models} >= {"intents", "next-word", "de-en"}
    with pytest.raises(InferenceServerException, match="--admin-keys") as refused:
        triton.unload_model("intents")
    assert refused.value.status() == "StatusCode.PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda each: each.infer("nope", [text_input(TEXTS)]), "NOT_FOUND", "known models"),
        (
            lambda each: each.infer("intents", [ids_input(np.zeros((1, 2), np.int64))]),
            "INVALID_ARGUMENT",
            "unknown input",
        ),
        (
            lambda each: each.infer("intents.tokens", [ids_input(np.full((1, 2), 10**6))]),
            "INVALID_ARGUMENT",
            "token ids",
        ),
        (
            lambda each: each.infer("de-en", [text_input(["Hallo. " * 50])], timeout=1000),
            "DEADLINE_EXCEEDED",
            "deadline",
        ),
        (
            lambda each: each.infer("de-en", [text_input(["Hallo. " * 50])], client_timeout=0.01),
            "DEADLINE_EXCEEDED",
            "",
        ),
        (lambda each: each.infer("intents", [text_input(["x" * 2_000_000])]), "RESOURCE_EXHAUSTED", "larger than max"),
        (lambda each: each.get_trace_settings(), "UNIMPLEMENTED", "not found"),
        (lambda each: each.get_system_shared_memory_status(), "UNIMPLEMENTED", "not found"),
    ],
)
def test_errors(triton, call, code, words):
    with pytest.raises(InferenceServerException) as found:
        call(triton)
    assert found.value.status() == f"StatusCode.{code}"
    assert words.lower() in found.value.message().lower()


def test_asynchronous_calls(triton, grpc_address):
    answers = queue.Queue()
    for _ in range(5):
        triton.async_infer("intents", [text_input(TEXTS)], lambda result, error: answers.put((result, error)))
    for _ in range(5):
        result, error = answers.get(timeout=30)
        assert error is None
        assert labels(result)[0] == "play_music"

    async def many():
        async with aio.InferenceServerClient(grpc_address) as other:
            calls = [other.infer("intents", [text_input(TEXTS, aio)]) for _ in range(20)]
            return await asyncio.gather(*calls)

    assert {labels(each)[0] for each in asyncio.run(many())} == {"play_music"}


def test_a_stream_goes_on_after_an_error(triton):
    answers = queue.Queue()
    triton.start_stream(lambda result, error: answers.put((result, error)))
    for model in ("intents", "nope", "intents"):
        triton.async_stream_infer(model, [text_input(TEXTS)], request_id=model)
    found = [answers.get(timeout=30) for _ in range(3)]
    triton.stop_stream()
    assert [error is None for _, error in found] == [True, False, True]
    assert "unknown model 'nope'" in str(found[1][1])


def test_keys(closed, key):
    with contextlib.closing(client.InferenceServerClient(closed.grpc_address)) as triton:
        assert triton.is_server_ready()
        assert triton.is_model_ready("intents")
        for headers in (None, {"authorization": "Bearer wrong"}):
            with pytest.raises(InferenceServerException, match="valid key") as refused:
                triton.infer("intents", [text_input(TEXTS)], headers=headers)
            assert refused.value.status() == "StatusCode.UNAUTHENTICATED"
        headers = {"authorization": f"Bearer {key}"}
        assert labels(triton.infer("intents", [text_input(TEXTS)], headers=headers))[0] == "play_music"
