"""Tests of zero-shot classification by imported classifiers of premise and hypothesis: it is that of transformers."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import transformers

from models.errors import QueryError, TextTooLongError
from models.store import BUNDLED, ModelStore, load_bundle
from models.tasks.text_classification import CLASSIFY, ZERO_SHOT, Classifier
from models.tasks.zero_shot import ZeroShot
from tests.training.importing.conftest import Import, Source, import_directory
from tests.training.importing.test_onnx_classifier import graph, saved

BERT, ROBERTA = "BertForSequenceClassification", "RobertaForSequenceClassification"
NAMES = {
    "last": ["contradiction", "neutral", "entailment"],
    "first": ["ENTAILMENT", "NEUTRAL", "CONTRADICTION"],
    "middle": ["contradiction", "entailment", "neutral"],
    "two": ["Entails", "other"],
}
"""The classes of models, by the place of entailment."""
TEXTS = ["Where is my parcel?", "I want to cancel my order; please call me.", "one two three"]
LABELS = ["delivery", "an order", "one", "please call me on Monday"]

Made = Callable[..., tuple[Classifier, Any]]


@pytest.fixture
def both(imported: Import, source: Source) -> Made:
    """Return a model and the pipeline of transformers."""

    def make(architecture: str = BERT, place: str = "last", **config: Any) -> tuple[Classifier, Any]:
        name = f"{architecture}-{place}"
        if architecture == ROBERTA:  # its tokens are short
            config["max_position_embeddings"] = 130
        config["id2label"] = dict(enumerate(NAMES[place]))
        config["label2id"] = {label: number for number, label in enumerate(NAMES[place])}
        bundle = imported(architecture, name, **config)
        assert bundle.difference <= 1e-4
        model = load_bundle(bundle.path)
        assert isinstance(model, Classifier)
        directory = source(architecture, name, **config)
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory, model_max_length=model.longest_input)
        reference: Any = getattr(transformers, architecture).from_pretrained(directory)
        kind: Any = transformers.ZeroShotClassificationPipeline
        return model, kind(model=reference, tokenizer=tokenizer, device="cpu")

    return make


def check(found: Sequence[ZeroShot], expected: Sequence[dict[str, Any]]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.text == theirs["sequence"]
        probabilities = [each.probability for each in ours.labels]
        assert probabilities == sorted(probabilities, reverse=True)
        assert {each.label: each.probability for each in ours.labels} == pytest.approx(
            dict(zip(theirs["labels"], theirs["scores"], strict=True)), abs=1e-4
        )


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize(("architecture", "place"), [(BERT, "last"), (ROBERTA, "last"), *((BERT, at) for at in NAMES)])
def test_probabilities_are_those_of_the_pipeline(both: Made, architecture: str, place: str, multi_label: bool) -> None:
    model, pipeline = both(architecture, place)
    expected = pipeline(TEXTS, LABELS, multi_label=multi_label)
    check(model.zero_shot(TEXTS, LABELS, multi_label=multi_label), expected)
    check([model.zero_shot([text], LABELS, multi_label=multi_label)[0] for text in TEXTS], expected)
    spread = np.ptp([score for each in expected for score in each["scores"]])
    assert spread > 0.01, "a constant would pass"
    total = sum(each.probability for each in model.zero_shot(TEXTS[:1], LABELS, multi_label=multi_label)[0].labels)
    assert (abs(total - 1) < 1e-6) is not multi_label


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("architecture", [BERT, ROBERTA])
def test_one_label_and_another_template(both: Made, architecture: str, multi_label: bool) -> None:
    model, pipeline = both(architecture)
    options = {"multi_label": multi_label}
    expected = pipeline(TEXTS, ["parcel"], hypothesis_template="Is it {}?", **options)
    found = model.zero_shot(TEXTS, ["parcel"], "Is it {}?", **options)
    check(found, expected)
    assert all(each.labels[0].probability < 0.9999 for each in found), "it is compared with contradiction"
    check(model.zero_shot(TEXTS, LABELS, "{}", **options), pipeline(TEXTS, LABELS, hypothesis_template="{}", **options))


@pytest.mark.parametrize("architecture", [BERT, ROBERTA])
def test_only_the_text_is_truncated(both: Made, architecture: str) -> None:
    model, pipeline = both(architecture)
    text = "one two three please call me " * 200
    check(model.zero_shot([text, TEXTS[0]], LABELS, truncate=True), pipeline([text, TEXTS[0]], LABELS))
    first, second = model.zero_shot([text, TEXTS[0]], LABELS, truncate=True)
    assert second.truncated is None
    assert first.truncated is not None
    with pytest.raises(TextTooLongError, match=f"in a pair; the model's limit is {model.longest_input}"):
        model.zero_shot([TEXTS[0] * 9], LABELS)
    with pytest.raises(TextTooLongError, match="in a pair"):
        model.zero_shot(TEXTS, ["one two three " * 40], truncate=True)


def test_hypotheses_share_batches_with_classification(both: Made) -> None:
    model, _ = both()
    query = model.zero_shot_queries(TEXTS[:1], LABELS)[0]
    mixed = model.run([model.query(TEXTS[1], 2), *query.parts(), model.query(TEXTS[2], 1)])
    assert [len(mixed[0].labels), len(mixed[-1].labels)] == [2, 1]
    alone = model.classify([TEXTS[1]], 2)[0]
    assert [each.label for each in mixed[0].labels] == [each.label for each in alone.labels]
    (expected,) = model.zero_shot(TEXTS[:1], LABELS)
    for found, label in zip(model.result(query, mixed[1:-1]).labels, expected.labels, strict=True):
        assert (found.label, found.probability) == (label.label, pytest.approx(label.probability, abs=1e-5))


def test_pairs_of_a_text_share_its_tokens(both: Made) -> None:
    """So that a request of many labels takes little memory while it waits."""
    model, _ = both()
    for truncate, text in ((False, TEXTS[0]), (True, TEXTS[0] * 40)):
        (query,) = model.zero_shot_queries([text], ["a", "b"] * 50, truncate=truncate)
        assert len({id(part.pair.before) for part in query.parts()}) == 1
        assert query.result_items == 100
        assert all(part.length == len(part.encoded.tokens) <= model.longest_input for part in query.parts())


@pytest.mark.parametrize("types", [True, False])
def test_a_file_in_the_onnx_format(types: bool, tmp_path: Path) -> None:
    """The scores of hypotheses are those of the file, whose configuration names the classes."""
    inputs = ("input_ids", "attention_mask", *(("token_type_ids",) if types else ()))
    names = {str(number): name for number, name in enumerate(NAMES["last"])}
    directory = saved(tmp_path / "there", graph(inputs), {"id2label": names})
    tokenizer = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    assert tokenizer["post_processor"]["pair"]
    model = load_bundle(import_directory(directory, tmp_path / "out").path)
    assert isinstance(model, Classifier)
    session = onnxruntime.InferenceSession(directory / "model.onnx")
    (query,) = model.zero_shot_queries(TEXTS[:1], LABELS)
    rows = []
    for part in query.parts():
        tokens = np.array([part.encoded.tokens])
        kinds = np.arange(tokens.shape[1])[None] >= part.encoded.second
        values = {"input_ids": tokens, "attention_mask": np.ones_like(tokens), "token_type_ids": kinds.astype(int)}
        rows.append(session.run(None, {name: values[name] for name in inputs})[0][0])
    scores = np.array(rows)
    np.testing.assert_allclose(model.run(query.parts()), scores, atol=1e-5)
    (found,) = model.zero_shot(TEXTS[:1], LABELS)
    expected = np.exp(scores[:, 2]) / np.exp(scores[:, 2]).sum()
    probabilities = {each.label: each.probability for each in found.labels}
    np.testing.assert_allclose([probabilities[label] for label in LABELS], expected, atol=1e-5)


def test_int8_has_it_too(source: Source, tmp_path: Path) -> None:
    directory = source(BERT, f"{BERT}-last", id2label=dict(enumerate(NAMES["last"])))
    model = load_bundle(import_directory(directory, tmp_path / "out", quantization="int8").path)
    assert isinstance(model, Classifier)
    float32 = load_bundle(import_directory(directory, tmp_path / "float32").path)
    for one, other in zip(model.zero_shot(TEXTS, LABELS), float32.zero_shot(TEXTS, LABELS), strict=True):
        ours, theirs = ({each.label: each.probability for each in result.labels} for result in (one, other))
        assert ours == pytest.approx(theirs, abs=0.2)


@pytest.mark.parametrize(
    ("labels", "template", "message"),
    [
        ([], "This is {}.", "labels are missing"),
        (["a"] * 101, "This is {}.", "labels may be at most 100, not 101"),
        (["a"], "This is it.", "template must have {} once"),
        (["a"], "{} and {}", "template must have {} once"),
        (["a"], "{} is {0.__class__}", "template must have {} once"),
    ],
)
def test_wrong_queries(both: Made, labels: list[str], template: str, message: str) -> None:
    model, _ = both()
    with pytest.raises(QueryError, match=message):
        model.zero_shot(TEXTS, labels, template)
    with pytest.raises(QueryError, match="the text is empty"):
        model.zero_shot(["a", " "], LABELS)
    with pytest.raises(TypeError, match="one string"):
        model.zero_shot(TEXTS, "labels")


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("", {}, 'none of its classes has a name that begins with "entail"'),
        (
            "independent",
            {"id2label": dict(enumerate(NAMES["last"])), "problem_type": "multi_label_classification"},
            "its classes are independent",
        ),
    ],
)
def test_other_models_have_no_zero_shot(imported: Import, name: str, config: dict[str, Any], message: str) -> None:
    model = load_bundle(imported(BERT, name, **config).path)
    assert isinstance(model, Classifier)
    assert model.operations == (CLASSIFY,)
    assert model.offers == ("classify",)
    with pytest.raises(QueryError, match=f"does not classify by labels of a request: {message}"):
        model.zero_shot(TEXTS, LABELS)


def test_models_of_single_texts_have_none() -> None:
    store = ModelStore(BUNDLED)
    model = store.load("intents", threads=1)
    assert (model.offers, store.offers("intents")) == (("classify",), ("classify",))
    with pytest.raises(QueryError, match="it reads single texts"):
        model.zero_shot(TEXTS, LABELS)
    assert Classifier.offers == ("classify", "zero-shot")


def test_the_manifest_says_whether_a_model_has_it(both: Made, imported: Import) -> None:
    model, _ = both()
    assert model.operations == (CLASSIFY, ZERO_SHOT)
    path = imported(BERT, f"{BERT}-last").path
    assert ModelStore(path.parents[1]).offers("it") == ("classify", "zero-shot")
