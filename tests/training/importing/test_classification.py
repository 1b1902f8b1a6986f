"""Tests of imported sequence classifiers: they are what transformers computes, or are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from models.reading import validate
from models.store import load_bundle
from models.tasks.text_classification import Classifier
from models.tasks.text_encoder import ImportedEncoder
from tests.support.random_classifiers import SIZES
from tests.training.importing.conftest import TEXTS, Import, Source, import_directory, set_config
from training.cli.calibrating import calibrate_bundle
from training.importing.classification import SequenceClassifierImporter
from training.importing.encoder_graph import EncoderModule
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions
from training.importing.samples import read_samples

LABELS = [f"class {number}" for number in range(3)]


def loaded(bundle: Path) -> Classifier:
    model = load_bundle(bundle)
    assert isinstance(model, Classifier)
    return model


def probabilities(model: Classifier, texts: Any) -> Any:
    found = [
        {each.label: each.probability for each in result.labels}
        for result in model.classify(texts, len(model.labels), truncate=True)
    ]
    return np.array([[row[label] for label in model.labels] for row in found])


@pytest.mark.parametrize("architecture", SIZES)
def test_results_are_those_of_transformers(architecture: str, imported: Import, source: Source, original: Any) -> None:
    bundle = imported(architecture)
    assert bundle.difference <= 1e-4
    ours, theirs = loaded(bundle.path), original(architecture)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source(architecture))
    texts = [text for text in TEXTS[:-2] if text]
    ids = [tokenizer(text)["input_ids"] for text in texts]
    longest = ids[0][:1] + (ids[0][1:-1] * 20)[: ours.config.limits.max_tokens - 2] + ids[0][-1:]
    with torch.no_grad():
        expected = [theirs(input_ids=torch.tensor([each])).logits.softmax(-1)[0].numpy() for each in [*ids, longest]]
    np.testing.assert_allclose(probabilities(ours, texts), expected[:-1], atol=1e-4)
    (found,) = ours.run([ours.token_query(longest, 3)])
    assert {each.label: each.probability for each in found.labels} == pytest.approx(
        dict(zip(ours.labels, expected[-1].tolist(), strict=True)), abs=1e-4
    )
    assert list(ours.labels) == LABELS
    every = [text for text in TEXTS if text]
    alone = np.concatenate([probabilities(ours, [text]) for text in every])
    np.testing.assert_allclose(probabilities(ours, every), alone, atol=1e-5)


@pytest.mark.parametrize("architecture", SIZES)
def test_pairs_are_those_of_transformers(architecture: str, imported: Import, source: Source, original: Any) -> None:
    ours, theirs = loaded(imported(architecture).path), original(architecture)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source(architecture))
    pairs = [(TEXTS[0], TEXTS[2]), (TEXTS[2], "one"), ("one two three", "")]
    queries = ours.pair_queries(pairs, 3)
    expected = []
    for query, pair in zip(queries, pairs, strict=True):
        encoding = tokenizer(*[[text] for text in pair], return_tensors="pt")
        assert list(query.tokens) == encoding["input_ids"][0].tolist()
        with torch.no_grad():
            expected.append(theirs(**encoding).logits.softmax(-1)[0].tolist())
    alone = [ours.run([query])[0] for query in queries]
    for found in (ours.run(queries), alone):
        for result, values in zip(found, expected, strict=True):
            probabilities = {each.label: each.probability for each in result.labels}
            assert probabilities == pytest.approx(dict(zip(ours.labels, values, strict=True)), abs=1e-4)


def test_the_manifest_describes_the_encoder(imported: Import) -> None:
    config = loaded(imported("RobertaForSequenceClassification").path).config
    assert isinstance(config.network, ImportedEncoder)
    assert config.network.architecture == "RobertaForSequenceClassification"
    assert (config.network.hidden_size, config.network.layers, config.network.heads) == (64, 1, 4)
    assert config.network.positions == 48, "two of its 50 rows are never used"
    assert config.limits.max_tokens == 48


def test_several_labels_have_a_sigmoid_each(imported: Import, original: Any) -> None:
    architecture, name = "DistilBertForSequenceClassification", "several"
    bundle = imported(architecture, name, problem_type="multi_label_classification")
    model, theirs = loaded(bundle.path), original(architecture, name)
    classes = model.config.classes
    assert (classes.independent, classes.threshold) == (True, 0.5)
    text = TEXTS[0]
    tokens = model.query(text, 3).tokens
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor([tokens])).logits.sigmoid()[0].numpy()
    np.testing.assert_allclose(probabilities(model, [text])[0], expected, atol=1e-4)
    assert abs(expected.sum() - 1) > 0.01


def test_a_wrong_graph_is_not_written(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shifted(EncoderModule):
        def __init__(self, model: Any, head: Any, *, first_position: int, **options: Any) -> None:
            super().__init__(model, head, first_position=first_position - 1, **options)

    monkeypatch.setattr("training.importing.encoder.EncoderModule", Shifted)
    with pytest.raises(ImportRefused, match=r"differs from that of transformers .* by .*, above 1e-04"):
        import_directory(source("RobertaForSequenceClassification"), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_other_tokens_are_refused(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.text.tokenization.EncoderTokenizer.framed", lambda self, ids, most=None: [1, *ids, 2])
    with pytest.raises(ImportRefused, match=r"'Hello' gets the tokens \[1, .*, but \[.* in transformers"):
        import_directory(source(), tmp_path / "out")


def test_a_limit_may_be_lower(source: Source) -> None:
    directory = source()
    assert make(directory, max_tokens=7).max_tokens == 7
    for wrong in (2, 49):
        with pytest.raises(ImportRefused, match=f"--max-tokens must be from 3 to 48, .* not {wrong}"):
            make(directory, max_tokens=wrong)


def make(directory: Path, **options: Any) -> SequenceClassifierImporter:
    from training.importing.source import open_source

    return SequenceClassifierImporter(open_source(str(directory)), ImportOptions(**options))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"problem_type": "regression"}, "problem_type 'regression' .*; state single_label"),
        ({"id2label": {"0": "only"}}, "one class: without problem_type"),
        ({"problem_type": "ranking"}, "problem_type 'ranking'"),
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "a label twice; rename one"),
        ({"id2label": {"0": "a\nb", "1": "c", "2": "d"}}, "cannot be a label, .*; rename it"),
        ({"id2label": {"0": "a", "1": "b", "3": "c"}}, "number its 3 labels from 0; correct it"),
        ({"hidden_size": 1 << 20}, "hidden_size.*; import its ONNX file"),
        ({"num_hidden_layers": 10**9}, "layers: Input should be less than or equal to 512"),
        ({"num_hidden_layers": 400}, "config.json describes .* parameters, the weights have .*; .* save it again"),
        ({"max_position_embeddings": 10**12}, "positions: Input should be less"),
        ({"max_position_embeddings": 40000}, "config.json describes .* parameters"),
        ({"vocab_size": 3}, "the tokenizer has .* tokens, more than vocab_size of config.json, 3; resize"),
        ({"hidden_size": 128}, "parameters, the weights have|do not fit"),
        ({"intermediate_size": 65}, "(?s)the weights do not fit config.json.*; .* save it again"),
        ({"hidden_size": "big"}, "config.json"),
        ({"is_decoder": True}, "is_decoder.*optimum-cli"),
        ({"quantization_config": {"load_in_8bit": True}}, "quantization_config"),
    ],
)
def test_what_cannot_be_imported(fields: dict[str, Any], message: str, source: Source) -> None:
    with pytest.raises(ImportRefused, match=message):
        make(set_config(source(), **fields))


def test_weights_that_lack_a_tensor_are_refused(source: Source) -> None:
    directory = source()
    weights = load_file(directory / "model.safetensors")
    del weights["classifier.bias"]
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    with pytest.raises(ImportRefused, match=r"the weights lack classifier\.bias; .* save it again"):
        make(directory)


def test_labels_that_are_not_named_are_numbered(source: Source) -> None:
    directory = source()
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    del config["id2label"], config["label2id"]
    (directory / "config.json").write_text(json.dumps({**config, "num_labels": 3}), encoding="utf-8")
    assert make(directory).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_labelled_texts_calibrate_the_probabilities(source: Source, tmp_path: Path) -> None:
    texts = [
        f"{first} {second} {number}"
        for number in range(4)
        for first in ["one", "two", "three"]
        for second in ["one", "two", "three", "four"]
    ]
    labels = [LABELS[number % 3] for number in range(len(texts))]
    file = tmp_path / "labelled.tsv"
    file.write_text("".join(f"{label}\t{text}\n" for label, text in zip(labels, texts, strict=True)))
    directory = source("BertForSequenceClassification")
    plain = loaded(import_directory(directory, tmp_path, read_samples(None), name="plain", description="").path)
    written = import_directory(directory, tmp_path, read_samples(file), name="calibrated", description="")
    model = loaded(written.path)
    assert model.config.classes.prediction_sets is not None
    assert model.config.classes.prediction_sets.examples == len(texts)
    np.testing.assert_allclose(
        [[each.probability for each in result.labels] for result in model.classify(texts, 3, calibration="none")],
        [[each.probability for each in result.labels] for result in plain.classify(texts, 3)],
        atol=1e-6,
    )
    sets = [{each.label for each in result.labels} for result in model.classify(texts, coverage=0.8)]
    assert np.mean([label in found for label, found in zip(labels, sets, strict=True)]) >= 0.8
    again = calibrate_bundle(written.path, tmp_path, file)
    assert again.config.classes == model.config.classes
    assert validate(written.path) == []
    file.write_text("class 7\tone two\n" * 5)
    with pytest.raises(ImportRefused, match="class 7"):
        import_directory(directory, tmp_path, read_samples(file), name="refused", description="")
