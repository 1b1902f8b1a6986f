"""The packages `openai`, `huggingface_hub` and `tritonclient` against a server of embeddings, ranks and pairs."""

import numpy as np
import openai
import pytest
import tritonclient.http
from huggingface_hub import InferenceClient

from models import ModelStore
from tests.clients.conftest import served

TEXTS = ["Where is my parcel?", "I want to cancel my order; please call me.", "one two"]


@pytest.fixture(scope="module")
def encoders(encoder_models, tmp_path_factory):
    """The address of the server."""
    yield from served(tmp_path_factory.mktemp("encoders") / "log.txt", "--model-dirs", encoder_models)


@pytest.fixture(scope="module")
def vectors(encoder_models):
    return ModelStore(encoder_models).load("vectors", threads=1)


def test_openai_embeddings(encoders, vectors):
    expected = vectors.embed(TEXTS)
    with openai.OpenAI(base_url=f"{encoders}/v1", api_key="none is needed", max_retries=0) as client:
        coded = client.embeddings.create(model="vectors", input=TEXTS)  # asks for base64
        plain = client.embeddings.create(model="vectors", input=TEXTS, encoding_format="float")
        short = client.embeddings.create(model="vectors", input=TEXTS[0], dimensions=4)
        with pytest.raises(openai.BadRequestError, match="dimensions must be from 1 to 16"):
            client.embeddings.create(model="vectors", input=TEXTS, dimensions=17)
    for found in (coded, plain):
        np.testing.assert_allclose([each.embedding for each in found.data], expected, atol=1e-6)
        assert found.usage.prompt_tokens > 0
    np.testing.assert_allclose(short.data[0].embedding, vectors.embed(TEXTS[:1], dimensions=4)[0], atol=1e-6)


def test_features_and_similarities_of_hugging_face(encoders, vectors):
    client = InferenceClient(f"{encoders}/hf/vectors", provider="hf-inference")
    np.testing.assert_allclose(client.feature_extraction(TEXTS), vectors.embed(TEXTS), atol=1e-6)
    found = client.feature_extraction(TEXTS[0], normalize=False, prompt_name="query", truncate=True)
    expected = vectors.embed(TEXTS[:1], normalize=False, prompt="query")
    np.testing.assert_allclose(np.reshape(found, (1, -1)), expected, atol=1e-6)
    cosines = client.sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    np.testing.assert_allclose(cosines, vectors.embed(TEXTS) @ vectors.embed(TEXTS[:1])[0], atol=1e-6)


def test_zero_shot_classification_of_hugging_face(encoders, encoder_models):
    follows = ModelStore(encoder_models).load("follows", threads=1)
    client = InferenceClient(f"{encoders}/hf/follows", provider="hf-inference")
    options = {"hypothesis_template": "It says {}.", "multi_label": True}
    for ours, theirs in (({}, {}), ({"template": "It says {}.", "multi_label": True}, options)):
        (expected,) = follows.zero_shot(TEXTS[:1], ["parcel", "order", "one"], **ours)
        found = client.zero_shot_classification(TEXTS[0], ["parcel", "order", "one"], **theirs)
        assert [each.label for each in found] == [each.label for each in expected.labels]
        np.testing.assert_allclose(
            [each.score for each in found], [each.probability for each in expected.labels], atol=1e-6
        )
    assert len(client.text_classification(TEXTS[0])) == 3
    long = client.zero_shot_classification(" ".join(TEXTS) * 20, ["parcel", "order"])
    assert sum(each.score for each in long) == pytest.approx(1)


def test_tensors(encoders, vectors, encoder_models):
    with tritonclient.http.InferenceServerClient(encoders.removeprefix("http://")) as client:
        inputs = tritonclient.http.InferInput("text", [len(TEXTS)], "BYTES")
        inputs.set_data_from_numpy(np.array(TEXTS, object))
        found = client.infer("vectors", [inputs]).as_numpy("embedding")
        np.testing.assert_allclose(found.reshape(len(TEXTS), -1), vectors.embed(TEXTS), atol=1e-6)
        scores = client.infer("ranks", [inputs], parameters={"query": TEXTS[0]}).as_numpy("score")
        numbers = client.infer("ranks", [inputs], outputs=[tritonclient.http.InferRequestedOutput("value")])
    ranks = ModelStore(encoder_models).load("ranks", threads=1)
    np.testing.assert_allclose(scores, [each.score for each in ranks.rerank(TEXTS[0], TEXTS)], atol=1e-6)
    np.testing.assert_allclose(numbers.as_numpy("value"), [each.value for each in ranks.regress(TEXTS)], atol=1e-5)
