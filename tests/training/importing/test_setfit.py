"""SetFit: sentence encoders with logistic regression, whose files are read without running them."""

import json
import os
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.svm import LinearSVC

from models import ModelStore
from tests.support.random_encoders import make_sentence_transformer
from training.bundling.bundle import BundleSettings
from training.importing.embedding import EmbeddingImporter
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions, chosen_importer, write_imported
from training.importing.linear_heads import read_linear_head
from training.importing.setfit import SetFitImporter
from training.importing.source import open_source

TEXTS = ["one two three", "four", "five six seven eight nine ten eleven"]


@pytest.fixture(scope="module")
def body(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("setfit") / "model"
    return make_sentence_transformer(directory, "BertModel", normalized=False, num_hidden_layers=1)


def fitted(classifier: Any, labels: Any, dimensions: int = 64) -> Any:
    generator = np.random.default_rng(0)
    return classifier.fit(generator.normal(size=(len(labels), dimensions)), labels)


MANY = np.random.default_rng(1).integers(0, 2, (40, 3))
CASES = [
    (LogisticRegression(), np.array(["a", "b", "c"] * 12), {}, ["a", "b", "c"]),
    (LogisticRegression(C=5), np.arange(36) % 2, {"labels": ["no", "yes"]}, ["no", "yes"]),
    (LogisticRegression(), np.arange(36) % 3, {"normalize_embeddings": True, "labels": None}, ["0", "1", "2"]),
    (LogisticRegression(fit_intercept=False), np.arange(36) % 4, {}, ["0", "1", "2", "3"]),
    (OneVsRestClassifier(LogisticRegression()), MANY, {"labels": ["x", "y", "z"]}, ["x", "y", "z"]),
    (MultiOutputClassifier(LogisticRegression()), MANY, {}, ["0", "1", "2"]),
]


@pytest.mark.parametrize(("classifier", "labels", "config", "names"), CASES)
def test_probabilities_are_those_of_scikit_learn(
    body: Path, tmp_path: Path, classifier: Any, labels: Any, config: dict[str, object], names: list[str]
) -> None:
    head = fitted(classifier, labels)
    joblib.dump(head, body / "model_head.pkl")
    (body / "config_setfit.json").write_text(json.dumps(config))
    source = open_source(str(body))
    kind = chosen_importer(source)
    assert kind is SetFitImporter
    settings = BundleSettings(name="few", version=1, description="A model.", licence="mit")
    write_imported(kind(source, ImportOptions()), settings, tmp_path)
    model = ModelStore(tmp_path).load("few")
    encoder = EmbeddingImporter(source, ImportOptions())
    vectors = np.stack([encoder.reference_vector(query.encoded) for query in model.queries(TEXTS, 1)])
    if config.get("normalize_embeddings"):
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = head.predict_proba(vectors)
    if isinstance(expected, list):
        expected = np.stack([each[:, 1] for each in expected], axis=1)
    for result, row in zip(model.classify(TEXTS, len(names)), expected, strict=True):
        found = {each.label: np.exp(each.log_probability) for each in result.labels}
        assert sorted(found) == sorted(names)
        assert [found[name] for name in names] == pytest.approx(row.tolist(), abs=1e-5)


class Command:
    """A command that a pickle must not run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_nothing_of_a_pickle_is_run(tmp_path: Path) -> None:
    head = fitted(LogisticRegression(), np.arange(36) % 3)
    for place in ("verbose", "coef_"):
        setattr(head, place, Command(tmp_path / "made"))
        joblib.dump(head, tmp_path / "head.pkl")
        with pytest.raises(ImportRefused, match=r"without running it, and is not one: it names posix\.mkdir"):
            read_linear_head(tmp_path / "head.pkl")
    head.coef_ = np.array([Command(tmp_path / "made")], dtype=object)
    joblib.dump(head, tmp_path / "head.pkl")
    with pytest.raises(ImportRefused, match="without running it"):
        read_linear_head(tmp_path / "head.pkl")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("classifier", "labels", "message"),
    [
        (LinearSVC(), np.arange(36) % 3, "it names sklearn.svm"),
        (OneVsRestClassifier(LogisticRegression()), np.arange(36) % 3, None),
        (MultiOutputClassifier(LogisticRegression()), np.stack([np.arange(36) % 3] * 2, 1), "other classifiers of"),
    ],
)
def test_other_heads_are_refused(tmp_path: Path, classifier: Any, labels: Any, message: str | None) -> None:
    joblib.dump(fitted(classifier, labels), tmp_path / "head.pkl")
    with pytest.raises(ImportRefused, match=f"{message or 'one versus rest'}.*; train a LogisticRegression"):
        read_linear_head(tmp_path / "head.pkl")


def test_one_versus_rest_is_refused(tmp_path: Path) -> None:
    head = fitted(LogisticRegression(), np.arange(36) % 3)
    head.multi_class = "ovr"
    joblib.dump(head, tmp_path / "head.pkl")
    with pytest.raises(ImportRefused, match="one versus rest"):
        read_linear_head(tmp_path / "head.pkl")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    joblib.dump(fitted(LogisticRegression(), np.arange(36) % 3), tmp_path / "head.pkl")
    content = (tmp_path / "head.pkl").read_bytes()
    for damaged in (b"", content[:100], content[:-500], content.replace(b"coef_", b"toes_")):
        (tmp_path / "head.pkl").write_bytes(damaged)
        with pytest.raises(ImportRefused):
            read_linear_head(tmp_path / "head.pkl")


def test_a_head_of_other_vectors_is_refused(body: Path) -> None:
    joblib.dump(fitted(LogisticRegression(), np.arange(36) % 3, dimensions=32), body / "model_head.pkl")
    source = open_source(str(body))
    with pytest.raises(ImportRefused, match=r"model_head\.pkl reads 32 dimensions, not 64"):
        SetFitImporter(source, ImportOptions())
