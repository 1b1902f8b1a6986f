"""The package `tritonclient` over HTTP against a server."""

import contextlib
import math

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from models import ModelStore
from service.settings import BUNDLED

TEXTS = ["play some music", "what is the weather like"]


@pytest.fixture(scope="module")
def triton(address):
    with contextlib.closing(client.InferenceServerClient(address.removeprefix("http://"))) as found:
        yield found


@pytest.fixture(scope="module")
def intents():
    return ModelStore(BUNDLED).load("intents", threads=1)


def text_input(texts, *, binary=True, name="text"):
    found = client.InferInput(name, [len(texts)], "BYTES")
    found.set_data_from_numpy(np.array([each.encode() for each in texts], object), binary_data=binary)
    return found


def ids_input(ids, *, binary=True):
    found = client.InferInput("input_ids", list(ids.shape), "INT64")
    found.set_data_from_numpy(ids, binary_data=binary)
    return found


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("outputs", [None, True, False], ids=["default", "binary", "json"])
def test_texts_are_classified(triton, intents, binary, outputs):
    requested = outputs is not None and [
        client.InferRequestedOutput(name, binary_data=outputs) for name in ("probability", "label")
    ]
    found = triton.infer("intents", [text_input(TEXTS, binary=binary)], outputs=requested or None, request_id="7")
    expected = intents.classify(TEXTS, 5)
    assert found.as_numpy("label").astype(str).tolist() == [[each.label for each in row.labels] for row in expected]
    probabilities = [[each.probability for each in row.labels] for row in expected]
    np.testing.assert_allclose(found.as_numpy("probability"), probabilities, atol=1e-5)
    assert found.get_response()["id"] == "7"
    assert (found.as_numpy("out_of_scope") is None) == (outputs is not None), "only the outputs that are asked for"


@pytest.mark.parametrize("binary", [True, False])
def test_token_ids_are_classified(triton, intents, binary):
    query = intents.query(TEXTS[0])
    ids = np.array([query.tokens], np.int64)
    output = client.InferRequestedOutput("log_probabilities", binary_data=binary)
    found = triton.infer("intents.tokens", [ids_input(ids, binary=binary)], outputs=[output], parameters={"top_k": 3})
    expected = [each.log_probability for each in intents.classify(TEXTS[:1], 3)[0].labels]
    np.testing.assert_allclose(found.as_numpy("log_probabilities"), [expected], atol=1e-4)


def test_token_ids_are_scored(triton):
    model = ModelStore(BUNDLED).load("next-word", threads=1)
    queries = [model.score_query(text) for text in ("we had a very good time .", "we had")]
    ids = np.zeros((2, len(queries[0].tokens)), np.int64)
    for row, query in enumerate(queries):
        ids[row, : len(query.tokens)] = query.tokens
    lengths = client.InferInput("lengths", [2], "INT32")
    lengths.set_data_from_numpy(np.array([len(query.tokens) for query in queries], np.int32))
    found = triton.infer("next-word.tokens", [ids_input(ids), lengths]).as_numpy("log_probabilities")
    for row, query in enumerate(queries):
        expected = [each.log_probability for each in model.run_score([query])[0].tokens]
        np.testing.assert_allclose(found[row, : len(expected)], expected, atol=1e-4)
        assert not found[row, len(expected) :].any()


def test_outputs_choose_the_operation(triton):
    text = [text_input(["we had a very"])]
    assert triton.infer("next-word", text).as_numpy("word").shape == (1, 10)
    both = [client.InferRequestedOutput(name) for name in ("log_probability", "word")]
    found = triton.infer("next-word", text, outputs=both, parameters={"top_k": 3})
    assert found.as_numpy("word").shape == (1, 3)
    assert found.as_numpy("log_probability")[0] < 0


def test_texts_are_translated(triton):
    found = triton.infer("de-en", [text_input(["Guten Morgen!"])], model_version="", timeout=5_000_000, priority=1)
    assert found.as_numpy("translation").tolist() == [b"Good morning!"]
    assert found.as_numpy("score").dtype == np.float32
    assert found.as_numpy("low_confidence").tolist() == [False]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(triton, algorithm):
    found = triton.infer(
        "intents",
        [text_input(TEXTS)],
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    assert found.as_numpy("label").shape == (2, 5)


def test_asynchronous_calls(address):
    with contextlib.closing(client.InferenceServerClient(address.removeprefix("http://"), concurrency=4)) as triton:
        calls = [triton.async_infer("intents", [text_input([text])]) for text in TEXTS * 4]
        assert all(call.get_result().as_numpy("label").shape == (1, 5) for call in calls)


def test_the_classification_extension(triton, intents):
    output = client.InferRequestedOutput("probability", class_count=2)
    found = triton.infer("intents", [text_input(TEXTS)], outputs=[output]).as_numpy("probability")
    assert found.shape == (2, 2)
    value, index, label = found[0, 0].decode().split(":")
    best = intents.classify(TEXTS, 1)[0].labels[0]
    assert (label, intents.labels[int(index)]) == (best.label, best.label)
    assert math.isclose(float(value), best.probability, abs_tol=1e-4)


def test_health_and_metadata(triton):
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("intents")
    assert not triton.is_model_ready("nothing")
    server = triton.get_server_metadata()
    assert server["name"] == "softserve"
    assert {"binary_tensor_data", "classification", "statistics", "model_repository"} <= set(server["extensions"])
    model = triton.get_model_metadata("intents", "2")
    assert (model["name"], model["versions"]) == ("intents", ["2"])
    assert model["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    config = triton.get_model_config("intents.tokens")
    assert [each["data_type"] for each in config["input"]] == ["TYPE_INT64", "TYPE_INT64"]


def test_statistics_move(triton):
    def count():
        (found,) = triton.get_inference_statistics("intents")["model_stats"]
        return found["inference_count"], found["inference_stats"]["compute_infer"]["ns"]

    before = count()
    triton.infer("intents", [text_input(TEXTS)])
    after = count()
    assert after[0] == before[0] + 2
    assert after[1] > before[1]
    assert {"intents", "de-en", "next-word"} <= {
        each["name"] for each in triton.get_inference_statistics()["model_stats"]
    }


def test_the_repository(triton):
    assert {"name": "intents", "version": "2", "state": "READY", "reason": ""} in triton.get_model_repository_index()
    for call in (triton.load_model, triton.unload_model):
        with pytest.raises(InferenceServerException, match="administrators"):
            call("intents")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda triton: triton.infer("nothing", [text_input(TEXTS)]), "nothing"),
        (lambda triton: triton.infer("intents", [text_input(TEXTS, name="txt")]), "unknown input 'txt'"),
        (
            lambda triton: triton.infer("intents", [text_input(TEXTS)], parameters={"topk": 1}),
            "unknown parameter 'topk'",
        ),
        (
            lambda triton: triton.infer("intents", [text_input(TEXTS)], outputs=[client.InferRequestedOutput("x")]),
            "unknown output 'x'",
        ),
        (lambda triton: triton.infer("intents.tokens", [ids_input(np.array([[99999]]))]), "token ids must be"),
        (lambda triton: triton.infer("intents", [text_input(TEXTS)], sequence_id=3), "no state"),
        (lambda triton: triton.get_trace_settings(), "not supported"),
        (lambda triton: triton.get_log_settings(), "not supported"),
        (lambda triton: triton.get_system_shared_memory_status(), "not supported"),
    ],
)
def test_errors_say_what_is_wrong(triton, call, message):
    with pytest.raises(InferenceServerException, match=message):
        call(triton)


def test_a_key_is_needed(closed):
    with contextlib.closing(client.InferenceServerClient(closed.removeprefix("http://"))) as triton:
        assert triton.is_server_ready()
        assert triton.is_model_ready("intents")
        with pytest.raises(InferenceServerException, match="key"):
            triton.infer("intents", [text_input(TEXTS)])
        headers = {"Authorization": "Bearer key-of-the-tests-0123456789"}
        assert triton.infer("intents", [text_input(TEXTS)], headers=headers).as_numpy("label").shape == (2, 5)
