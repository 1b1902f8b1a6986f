"""Tests of imported rerankers and models of regression: their numbers are those of transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from models.errors import QueryError, TextTooLongError
from models.store import load_bundle
from models.tasks.text_regression import Regressor
from tests.support.random_classifiers import SIZES
from tests.training.importing.conftest import Import, Source, import_directory, set_config
from training.importing.errors import ImportRefused

QUERY, TEXTS = "Where is my parcel?", ("I want to cancel my order; please call me.", "one two", "naïve Straße 🙂")


def loaded(bundle: Path) -> Regressor:
    model = load_bundle(bundle)
    assert isinstance(model, Regressor)
    return model


@pytest.mark.parametrize("architecture", SIZES)
def test_numbers_are_those_of_transformers(architecture: str, imported: Import, source: Source) -> None:
    name = f"{architecture}-1"
    bundle = imported(architecture, name, labels=1)
    assert bundle.difference < 1e-4
    directory = source(architecture, name, labels=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    original: Any = getattr(transformers, architecture).from_pretrained(directory).eval()
    expected = []
    for text in TEXTS:
        tokens = tokenizer([QUERY], [text], return_tensors="pt")
        with torch.no_grad():
            expected.append(float(original(**tokens).logits[0, 0]))
    model = loaded(bundle.path)
    found = model.rerank(QUERY, TEXTS, activation="none")
    assert [each.score for each in found] == pytest.approx(expected, abs=1e-4)
    alone = [model.rerank(QUERY, [text])[0] for text in TEXTS]
    assert [each.score for each in alone] == pytest.approx((1 / (1 + np.exp(-np.array(expected)))).tolist(), abs=1e-4)
    (paired,) = model.regress([QUERY], text_pair=TEXTS[0])
    assert paired.value == pytest.approx(expected[0], abs=1e-4)
    with torch.no_grad():
        single = original(**tokenizer(QUERY, return_tensors="pt")).logits[0, 0]
    assert model.regress([QUERY])[0].value == pytest.approx(float(single), abs=1e-4)


def test_long_pairs_are_cut_as_in_transformers(imported: Import, source: Source) -> None:
    architecture, name = "BertForSequenceClassification", "BertForSequenceClassification-1"
    model = loaded(imported(architecture, name, labels=1).path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source(architecture, name, labels=1))
    words = ["one", "two", "three"] * 20
    with pytest.raises(TextTooLongError, match="tokens in a pair; the model's limit is 48"):
        model.rerank(QUERY, [" ".join(words)])
    for first, second in ((3, 60), (60, 3), (40, 41), (41, 40), (30, 30), (22, 60), (60, 23), (0, 60)):
        pair = " ".join(words[:first]), " ".join(words[:second])
        (query,) = model.pair_queries([pair], truncate=True)
        expected = tokenizer([pair[0]], [pair[1]], truncation="longest_first", max_length=48)["input_ids"][0]
        assert list(query.encoded.tokens) == expected, (first, second)
        assert query.encoded.truncated is not None


def test_a_query_is_needed_and_pairs_must_be_read(source: Source, tmp_path: Path) -> None:
    directory = source("BertForSequenceClassification", "no-pairs", labels=1)
    tokenizer = directory / "tokenizer.json"
    text = tokenizer.read_text(encoding="utf-8")
    assert '"pair": [' in text
    start = text.index('"pair": [')
    end = text.index('"special_tokens"', start)
    tokenizer.write_text(
        text[:start] + '"pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", '
        '"type_id": 1}}], ' + text[end:],
        encoding="utf-8",
    )
    model = loaded(import_directory(directory, tmp_path / "out").path)
    assert model.config.pairs is None
    with pytest.raises(QueryError, match="reads single texts, no pairs"):
        model.rerank(QUERY, TEXTS)
    with pytest.raises(QueryError, match="query is missing"):
        model.rerank_queries(None, TEXTS)
    assert len(model.regress(TEXTS)) == 3


@pytest.mark.parametrize(
    ("fields", "activation"),
    [
        ({}, "sigmoid"),
        ({"problem_type": "regression"}, "none"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "none"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, "sigmoid"),
    ],
)
def test_the_score_is_as_the_directory_says(
    fields: dict[str, Any], activation: str, source: Source, tmp_path: Path
) -> None:
    directory = set_config(source("BertForSequenceClassification", "score", labels=1), **fields)
    model = loaded(import_directory(directory, tmp_path / "out").path)
    assert model.config.activation == activation


def test_int8_and_several_numbers(source: Source, tmp_path: Path) -> None:
    directory = source("BertForSequenceClassification", "int8", labels=1)
    found = import_directory(directory, tmp_path / "out", quantization="int8")
    assert found.cost is not None
    assert found.cost.metric == "correlation with float32"
    assert found.cost.value > 0.9
    several = set_config(source(), problem_type="regression")
    with pytest.raises(ImportRefused, match="several numbers"):
        import_directory(several, tmp_path / "out", name="several")
