"""Tests of what peers serve: the same answers as the library's without calibration, whatever the batch."""

import numpy as np

from benchmarks.peers.classifier import Classifier, Settings
from benchmarks.peers.texts import make_texts
from models import ModelStore
from service.settings import BUNDLED

INTENTS = BUNDLED / "intents" / "2"


def test_answers_are_those_of_the_library():
    texts = [*make_texts(20), "play [SEP] some jazz"]
    ours = ModelStore(BUNDLED).load("intents", threads=1).classify(texts, top_k=5, calibration="none")
    classifier = Classifier(INTENTS, threads=1)
    for text, expected in zip(texts, ours, strict=True):
        labels = classifier.classify([text])[0]["labels"]
        assert labels[0]["label"] == expected.labels[0].label
        np.testing.assert_allclose(labels[0]["probability"], expected.labels[0].probability, atol=0.05)
        assert len(labels) == 5


def test_settings_survive_the_environment(monkeypatch, tmp_path):
    settings = Settings(tmp_path, 8000, 2, 1)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings.from_environment() == settings
