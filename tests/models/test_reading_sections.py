"""Tests of the sections of tasks in manifests."""

import json

import pytest

from models.bundle.manifest import upgraded
from models.reading import read_manifest
from tests.models.test_reading import problems_of

# ---- sections of tasks ----


@pytest.fixture
def translation(babbler_bundle):
    return upgraded(json.loads((babbler_bundle / "manifest.json").read_text(encoding="utf-8")))


def test_a_translator_has_languages_and_a_transformer(rewrite, translation):
    config = read_manifest(rewrite(translation)).config
    assert (config.network.kind, config.network.positions) == ("transformer", 1024)
    assert (config.languages.source, config.languages.target) == ("de", "en")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"languages": None}, "config.languages: "),
        ({"languages": {"source": "German", "target": "en"}}, "config.languages.source: "),
        ({"limits": {"max_tokens": 1024}}, "limits.max_tokens must be below network.positions, which is 1024"),
        ({"network": {"kind": "lstm", "hidden_size": 1, "num_layers": 1}}, "config.network.kind: "),
        ({"network": {"kind": "gru"}}, "config.network.kind: Input should be 'transformer'"),
        ({"classes": {"file": "tokenizer.json", "count": 8}}, "config.classes: Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_with_the_section_of_a_translator_is_named(rewrite, translation, change, problem):
    translation["config"] |= change
    assert any(problem in each for each in problems_of(rewrite(translation)))


def test_missing_graphs_are_named(rewrite, translation):
    assert any("graphs lacks encode, step" in each for each in problems_of(rewrite(translation | {"graphs": {}})))


@pytest.fixture
def classification(errands_export):
    return json.loads((errands_export.path / "manifest.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"classes": None}, "config.classes: "),
        ({"classes": {"file": "labels.txt", "count": 1}}, "config.classes.count: "),
        ({"classes": {"file": "../labels.txt", "count": 8}}, "config.classes.file: "),
        ({"classes": {"file": "names.txt", "count": 8}}, "no checksum in files for names.txt"),
        ({"classes": {"file": "labels.txt", "count": 8, "threshold": 1.0}}, "config.classes.threshold: "),
        ({"tokenizer": None}, "config.tokenizer: "),
        ({"limits": {}}, "config.limits.max_tokens: Field required"),
        ({"limits": {"max_tokens": 9, "max_pixels": 9}}, "config.limits.max_pixels: Extra inputs are not permitted"),
        ({"limits": {"max_tokens": 25}}, "limits.max_tokens must be at most network.positions, 24"),
    ],
)
def test_what_is_wrong_with_the_section_of_a_classifier_is_named(rewrite, classification, change, problem):
    classification["config"] |= change
    assert any(problem in each for each in problems_of(rewrite(classification)))
