"""Sets of translations with a chosen coverage: by hand, and of a bundle whose examples are made here."""

import json
import shutil

import numpy as np
import pytest

from models import BundleError, QueryError
from models.decoding.beam_search import SearchOptions
from models.reading import sha256_of
from models.store import load_bundle
from models.tasks.prediction_sets import Penalty, SetPredictor
from models.tasks.translation_sets import TranslationPredictor, first_acceptable
from models.text.glossary import Glossary
from models.text.markup import Markup
from tests.fixtures.bundled import DE_EN, DE_EN_VERSION

FILE = "scores.bin"
TEXT = "Der Zug kommt."


def rows(before, own=0.1):
    """Return examples whose first acceptable translations have these probabilities before them."""
    return np.array([(0.0, 2.0, each, own) for each in before])


def predictor(before):
    return TranslationPredictor(SetPredictor.of(rows(before), Penalty(), 1), 5)


def test_the_first_acceptable_translation_comes_after_ones_that_are_not():
    assert first_acceptable([0.5, 0.8, 1.0, 0.3]).tolist() == pytest.approx([0.5, 0.4, 0.1, 0.0])


def test_a_set_ends_where_one_of_its_translations_is_acceptable_with_the_probability_of_the_quantile():
    sets = predictor(np.arange(1, 10) / 10)  # 9 examples: 0.1 to 0.9
    chosen = sets.coverage(0.8, 5, SearchOptions())  # ceil(10 * 0.8) = 8th score: 0.8
    assert sets.size([0.5, 0.5, 0.5, 0.5], chosen) == 3  # before: 0, 0.5, 0.75, 0.875
    assert sets.size([0.9, 0.9, 0.9], chosen) == 1
    assert sets.size([0.1, 0.1, 0.1], chosen) == 3
    assert sets.size([0.0, 0.0], chosen) == 1, "a set is never empty"
    assert sets.examples == 9


@pytest.mark.parametrize(
    ("level", "beam_size", "options", "message"),
    [
        (1.0, 5, SearchOptions(), "between 0 and 1"),
        (0.95, 5, SearchOptions(), "needs 19 calibration examples"),
        (0.5, 4, SearchOptions(), "beam size 5 .* beam_size cannot be chosen"),
        (0.5, 4, SearchOptions(length_penalty=0.0), "beam_size and length_penalty cannot"),
        (0.5, 5, SearchOptions(temperature=1.0), "temperature cannot"),
        (0.5, 5, SearchOptions(sparse=True), "sparse cannot"),
    ],
)
def test_wrong_coverages_and_other_searches_are_refused(level, beam_size, options, message):
    with pytest.raises(QueryError, match=message):
        predictor(np.arange(1, 10) / 10).coverage(level, beam_size, options)


def test_sentences_without_an_acceptable_translation_bound_the_coverage():
    found = np.array([(0.0, 1.0, 0.0, 0.9), (0.0, 6.0, 0.9, 0.0), (0.0, 6.0, 0.8, 0.0)])
    sets = TranslationPredictor(SetPredictor.of(found, Penalty(), 1), 5)
    with pytest.raises(QueryError, match=r"at most 0\.25 is possible"):
        sets.coverage(0.5, 5, SearchOptions())


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundled translator with 99 examples, whose probabilities before the first acceptable one are 0.01 to 0.99."""
    path = tmp_path_factory.mktemp("bundles") / "de-en" / DE_EN_VERSION
    shutil.copytree(DE_EN, path)
    _change(path, SetPredictor.written(rows(np.arange(1, 100) / 100)))
    return path


def _change(path, scores):
    (path / FILE).write_bytes(scores)
    content = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    content["config"]["sets"] = {"file": FILE, "examples": 99, "in_sets": 99, "penalty": {}, "beam_size": 5}
    content["files"][FILE] = sha256_of(path / FILE)
    (path / "manifest.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(scope="module")
def model(bundle):
    return load_bundle(bundle)


def test_a_translator_returns_sets(model):
    (listed,) = model.translate([TEXT], 5, options=SearchOptions(n_best=5), confidences=True)
    failed = np.cumprod([1 - each.sentences[0].confidence for each in listed.translations])
    for level in (0.5, 0.99):
        (found,) = model.translate([TEXT], coverage=level)
        size = 1 + int((1 - failed[:-1] <= level + 1e-6).sum())
        assert found.translations == tuple(type(each)(each.text, each.score) for each in listed.translations[:size])
        assert (found.calibration_examples, found.confidence) == (99, listed.confidence)
    assert listed.calibration_examples is None


def test_a_larger_coverage_has_a_larger_set(model):
    sizes = [
        len(model.translate(["Er ging hin, ohne zu zögern."], coverage=each)[0].translations) for each in (0.01, 0.99)
    ]
    assert sizes[0] == 1 < sizes[1] <= 5


def test_a_text_without_words_is_its_own_set(model):
    (found,) = model.translate(["12"], coverage=0.9)
    assert [each.text for each in found.translations] == ["12"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("Er kommt. Sie geht.", {}, "one sentence, and the text has 2"),
        ("<b>Ja</b>", {"markup": Markup("html")}, "none of texts with markup"),
        ("Ja", {"glossary": Glossary.of({"Ja": "yes"})}, "none of translations by a glossary"),
        ("Ja", {"beam_size": 2}, "beam_size cannot be chosen"),
        ("Ja", {"coverage": 0.999}, "needs 999 calibration examples"),
    ],
)
def test_texts_and_options_that_sets_do_not_hold_for_are_refused(model, text, options, message):
    with pytest.raises(QueryError, match=message):
        model.translate([text], **{"coverage": 0.5, **options})


def test_manifest_and_summary_tell_the_examples(model):
    assert FILE in model.config.files()
    assert model.config.summary()["calibration_examples"] == 99
    assert "99 calibration examples" in model.config.description()["sets of translations"]


def test_a_model_without_examples_or_confidence_has_no_sets(bundle, tmp_path):
    path = tmp_path / "de-en" / DE_EN_VERSION
    shutil.copytree(bundle, path)
    content = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    without = content | {"config": {**content["config"], "confidence": None}}
    (path / "manifest.json").write_text(json.dumps(without), encoding="utf-8")
    with pytest.raises(BundleError, match="confidence is missing"):
        load_bundle(path)
    without = content | {"config": {**content["config"], "sets": None}}
    (path / "manifest.json").write_text(json.dumps(without), encoding="utf-8")
    with pytest.raises(QueryError, match=f"de-en:{DE_EN_VERSION} has no calibration examples of translations"):
        load_bundle(path).translate(["Ja"], coverage=0.5)
