"""Vectors, ranks and labels of tokens over gRPC, as the models compute them."""

import grpc
import numpy as np
import pytest

from models.store import load_bundle
from service.protocols.open_inference.grpc import open_inference_pb2 as messages
from tests.service.protocols.open_inference.grpc.test_server import METHOD, serving

TEXTS = ["Where is my parcel?", "I want to cancel my order; please call me.", "one two"]


@pytest.fixture(scope="module")
def bundles(encoder_models, tagger_bundle):
    """Return the directories of the models `vectors`, `ranks` and `names`, a tagger."""
    return {"vectors": encoder_models / "vectors/1", "ranks": encoder_models / "ranks/1", "names": tagger_bundle}


def _parents(bundles):
    return tuple({path.parent.parent for path in bundles.values()})


@pytest.fixture(scope="module")
def channel(bundles, wait_until):
    with (
        serving(wait_until, models=tuple(bundles), model_dirs=_parents(bundles)) as (_, port),
        grpc.insecure_channel(f"127.0.0.1:{port}") as opened,
    ):
        yield opened


def infer(channel, model, texts, **parameters):
    """Return the outputs that are numbers, by name."""
    request = messages.ModelInferRequest(model_name=model)
    request.inputs.add(name="text", datatype="BYTES", shape=[len(texts)]).contents.bytes_contents.extend(
        text.encode() for text in texts
    )
    for name, value in parameters.items():
        request.parameters[name].string_param = value
    method = channel.unary_unary(
        METHOD + "ModelInfer", lambda each: each.SerializeToString(), messages.ModelInferResponse.FromString
    )
    answer = method(request, timeout=30)
    kinds = {"FP32": "<f4", "INT64": "<i8"}
    return {
        output.name: np.frombuffer(raw, kinds[output.datatype]).reshape(output.shape)
        for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
        if output.datatype in kinds
    }


def test_vectors(channel, bundles):
    expected = load_bundle(bundles["vectors"]).embed(TEXTS, prompt="query")
    np.testing.assert_allclose(infer(channel, "vectors", TEXTS, prompt="query")["embedding"], expected, atol=1e-6)


def test_ranks_of_texts_for_a_query(channel, bundles):
    expected = [each.score for each in load_bundle(bundles["ranks"]).rerank("a parcel", TEXTS)]
    np.testing.assert_allclose(infer(channel, "ranks", TEXTS, query="a parcel")["score"], expected, atol=1e-6)


def test_labels_of_tokens(channel, bundles):
    found = infer(channel, "names", TEXTS[:1], aggregation="none")
    (expected,) = load_bundle(bundles["names"]).tag(TEXTS[:1], aggregation="none")
    assert len(expected.entities) > 0
    assert found["start"].tolist() == [[each.start for each in expected.entities]]
    np.testing.assert_allclose(found["score"], [[each.score for each in expected.entities]], atol=1e-6)
