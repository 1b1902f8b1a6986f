"""Tests of classifiers as bundles: what they answer, to whom, and to what rubbish."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from models import BundleError, Classifier, QueryError, TextTooLongError
from models.backend import Array, BackendName
from models.reading import sha256_of
from models.store import load_bundle
from training.bundling.bundle import WrittenBundle
from training.tasks.classification_export import LABELS
from training.tasks.text_classification import TextClassificationTask

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")

ODD_TEXTS = [
    "",
    " \t\n",
    "\N{ROBOT FACE}\N{ZERO WIDTH JOINER}\N{ROBOT FACE}",
    "我想订一张桌子",
    "\x00\x07\x1b[31m",
    "[SEP] [CLS] [PAD]",
    "a" * 500,
]


@pytest.fixture(scope="module", params=["onnx", "torchscript"])
def classifier(request: pytest.FixtureRequest, errands_export: WrittenBundle) -> Classifier:
    backend: BackendName = request.param
    model = load_bundle(errands_export.path, backend=backend)
    assert isinstance(model, Classifier)
    return model


def _numbers(model: Classifier, texts: Sequence[str]) -> np.ndarray:
    results = model.classify(texts, len(model.labels))
    return np.array([[each.probability for each in result.labels] for result in results])


def test_classes_are_told_by_their_words(classifier: Classifier) -> None:
    found = classifier.classify(["could you please fry", "strum now", "i would like to reserve"], top_k=1)
    assert [result.labels[0].label for result in found] == ["cook", "play", "book"]
    assert all(result.labels[0].probability > 0.9 for result in found)


def test_probabilities_are_the_trained_models(classifier: Classifier, errands_task: TextClassificationTask) -> None:
    texts = ["please read the", "we sing and sing again", "walk"]
    found = _numbers(classifier, texts)
    expected = errands_task.predictions(errands_task.batched(texts))[0].probabilities
    np.testing.assert_allclose(found, expected[:, :4], rtol=1e-4, atol=1e-6)


def test_classes_of_probability_0_are_left_out(classifier: Classifier) -> None:
    (result,) = classifier.classify(["please walk"], top_k=8)
    assert len(result.labels) == 4  # sparse_k
    assert sum(each.probability for each in result.labels) == pytest.approx(1)
    probabilities = [each.probability for each in result.labels]
    assert probabilities == sorted(probabilities, reverse=True)


def test_more_classes_than_there_are_is_all_of_them(classifier: Classifier) -> None:
    assert classifier.classify(["walk"], top_k=10**6) == classifier.classify(["walk"], top_k=8)


@pytest.mark.parametrize("top_k", [0, -1])
def test_less_than_one_class_is_an_error(classifier: Classifier, top_k: int) -> None:
    with pytest.raises(QueryError, match="top_k must be at least 1"):
        classifier.classify(["walk"], top_k=top_k)


def test_one_string_is_no_list(classifier: Classifier) -> None:
    with pytest.raises(TypeError, match="not one string"):
        classifier.classify("walk")


def test_nothing_gives_nothing(classifier: Classifier) -> None:
    assert classifier.classify([]) == []


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_have_answers(classifier: Classifier, text: str) -> None:
    (result,) = classifier.classify([text], truncate=True)
    assert result.text == text
    assert result.labels


def test_half_a_surrogate_pair_is_refused(classifier: Classifier) -> None:
    with pytest.raises(QueryError, match="surrogate"):
        classifier.classify(["\ud800"])


def test_special_tokens_spelled_out_are_text(classifier: Classifier) -> None:
    tokens = classifier.query("walk [SEP] please").tokens
    assert tokens.count(classifier.manifest.config.special_tokens.end) == 1


# ---- long texts -------------------------------------------------------------------------------------------


def test_a_text_at_the_limit_is_read_and_one_above_refused(classifier: Classifier) -> None:
    assert classifier.query("walk " * 22).length == 24
    with pytest.raises(TextTooLongError, match="25 tokens; the model's limit is 24"):
        classifier.query("walk " * 23)


def test_truncation_keeps_head_and_tail(classifier: Classifier) -> None:
    whole = classifier.query("book " * 5 + "call " * 17).tokens
    cut = classifier.query("book " * 5 + "sing " * 100 + "call " * 17, truncate=True)
    assert cut.tokens == whole
    assert cut.truncated == 100
    assert classifier.query("book " * 5 + "sing " * 1000 + "call " * 17, truncate=True).tokens == whole


def test_ten_thousand_words_are_refused_or_cut(classifier: Classifier) -> None:
    text = "please walk " * 5000
    with pytest.raises(TextTooLongError, match="characters"):
        classifier.classify([text])
    (result,) = classifier.classify([text], truncate=True)
    assert result.labels[0].label == "walk"
    assert result.truncated == pytest.approx(10_000 - 22, abs=1)
    assert classifier.classify(["please walk"], truncate=True)[0].truncated is None


# ---- batches ----------------------------------------------------------------------------------------------


def test_an_answer_does_not_depend_on_neighbours(classifier: Classifier) -> None:
    texts = [f"{'please ' * (index % 20)}{word}" for index, word in enumerate(["walk", "sing", "cook", "read"] * 25)]
    together = _numbers(classifier, texts)
    alone = np.concatenate([_numbers(classifier, [text]) for text in texts])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("device", "runs"), [("cpu", 4), ("cuda", 1)])
def test_a_batch_is_split_as_the_device_has_it(errands_export: WrittenBundle, device: str, runs: int) -> None:
    model = load_bundle(errands_export.path)
    backend, shapes = model.backend, []

    class Counting:
        name, parallel, device = backend.name, backend.parallel, ""

        def run(self, graph: str, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
            shapes.append(inputs["tokens"].shape)
            results: list[Array] = backend.run(graph, inputs, outputs)
            return results

    counting = Counting()
    counting.device = device
    other = Classifier(model.manifest, model._texts.tokenizer, model.labels, counting)  # type: ignore[arg-type]
    queries = other.warm_up_parts("classify", 256, 16)
    assert len(other.run(queries)) == 256
    assert len(shapes) == runs
    assert sum(rows for rows, _ in shapes) == 256


def test_each_text_gets_as_many_classes_as_it_asked_for(classifier: Classifier) -> None:
    queries = [classifier.query("walk", 1), classifier.query("please sing now", 3), classifier.query("cook", 2)]
    assert [len(result.labels) for result in classifier.run(queries)] == [1, 3, 2]


# ---- bundles that are not what they should be -------------------------------------------------------------


def _copy(bundle: Path, target: Path) -> Path:
    return shutil.copytree(bundle, target / "errands" / "1")


def _restate(bundle: Path, name: str) -> None:
    """The manifest states the checksum of a file as it is now."""
    path = bundle / "manifest.json"
    content = json.loads(path.read_text())
    content["files"][name] = sha256_of(bundle / name)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("content", ["a\n", "walk\n" * 8, "", "\xff"])
def test_other_labels_than_promised_are_refused(errands_export: WrittenBundle, tmp_path: Path, content: str) -> None:
    bundle = _copy(errands_export.path, tmp_path)
    (bundle / LABELS).write_bytes(content.encode("latin-1"))
    _restate(bundle, LABELS)
    with pytest.raises(BundleError, match=r"8 different labels|utf-8"):
        load_bundle(bundle)


def test_another_tokenizer_is_refused(errands_export: WrittenBundle, tmp_path: Path) -> None:
    bundle = _copy(errands_export.path, tmp_path)
    path = bundle / "tokenizer.json"
    content = json.loads(path.read_text())
    del content["model"]["vocab"]["walk"]
    path.write_text(json.dumps(content))
    _restate(bundle, path.name)
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        load_bundle(bundle)


def test_token_ids_are_classified_as_their_text(classifier: Classifier) -> None:
    query = classifier.query("buy some milk", 3)
    (found,) = classifier.run([classifier.token_query(query.tokens, 3)])
    assert found.labels == classifier.classify(["buy some milk"], 3)[0].labels
    for wrong in ([], [-1], [classifier.config.vocab_size]):
        with pytest.raises(QueryError, match="token"):
            classifier.token_query(wrong)
    with pytest.raises(TextTooLongError):
        classifier.token_query([1] * (classifier.longest_input + 1))
