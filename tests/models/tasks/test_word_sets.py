"""Sets of next words with a chosen coverage: by hand, and of a bundle whose examples are made here."""

import json
import math
import shutil
from dataclasses import dataclass

import numpy as np
import pytest

from models import BundleError, QueryError
from models.reading import sha256_of
from models.store import BUNDLED, load_bundle
from models.tasks.prediction_sets import Penalty, SetPredictor
from models.tasks.word_sets import WordPredictor

FILE = "next_word_scores.bin"


@dataclass(frozen=True)
class Candidate:
    word: str
    log_probability: float


def rows(before, own=0.1):
    """Return examples of words with these probabilities before them."""
    return np.array([(0.0, 2.0, each, own) for each in before])


def predictor(before, listed=3):
    return WordPredictor({"word": (SetPredictor.of(rows(before), Penalty(), 1), listed)})


def words(*probabilities):
    return [Candidate(name, math.log(each)) for name, each in zip("abcdef", probabilities, strict=False)]


def test_the_set_ends_where_more_probable_words_reach_the_quantile():
    sets = predictor(np.arange(1, 10) / 10)  # 9 examples: 0.1 to 0.9
    chosen = sets.coverage("word", coverage=0.6)  # ceil(10 * 0.6) = 6th score: 0.6
    found = chosen.of(words(0.5, 0.1, 0.1, 0.3), "")
    assert [each.word for each in found] == ["a", "b", "c"]  # before: 0, 0.5, 0.6, 0.7
    assert [each.word for each in chosen.of(words(0.7, 0.3), "")] == ["a"]
    assert (chosen.examples, chosen.listed) == (9, 3)


def test_without_a_coverage_there_is_no_set():
    assert predictor([0.1]).coverage("word") is None


def test_words_that_are_no_candidates_are_in_no_set():
    rare = np.array([(0.0, 2.0, 0.2, 0.1), (0.0, 4.0, 0.9, 0.0), (0.0, 4.0, 0.9, 0.0)])
    sets = WordPredictor({"word": (SetPredictor.of(rare, Penalty(), 1), 3)})
    with pytest.raises(QueryError, match=r"the right one of 2 of 3 calibration examples is in no set; at most 0\.25"):
        sets.coverage("word", coverage=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 1.0}, "between 0 and 1"),
        ({"coverage": 0.99}, "needs 99 calibration examples"),
        ({"randomized": True}, "needs a coverage"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(QueryError, match=message):
        predictor([0.1, 0.2]).coverage("word", **options)


def test_a_unit_without_examples_is_refused():
    with pytest.raises(QueryError, match="no calibration examples of tokens"):
        predictor([0.1]).coverage("token", coverage=0.4)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundled model of words with 99 examples, whose probabilities before them are 0.01 to 0.99."""
    path = tmp_path_factory.mktemp("bundles") / "next-word" / "4"
    shutil.copytree(BUNDLED / "next-word" / "4", path)
    (path / FILE).write_bytes(SetPredictor.written(rows(np.arange(1, 100) / 100)))
    content = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    content["config"]["sets"] = {
        "word": {"file": FILE, "examples": 99, "penalty": {"weight": 0.0, "free_ranks": 0}, "listed": 50}
    }
    content["files"][FILE] = sha256_of(path / FILE)
    (path / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_model_returns_sets(bundle):
    model, context = load_bundle(bundle), "we had a very"
    (found,) = model.next_words([context], coverage=0.5)
    (listed,) = model.next_words([context], 50)
    before = np.cumsum([0.0, *(each.probability for each in listed.words)])
    assert found.words == listed.words[: int((before[:-1] <= 0.5 + 1e-6).sum())]
    assert 1 < len(found.words) < 50
    assert (found.calibration_examples, listed.calibration_examples) == (99, None)


def test_a_larger_coverage_has_a_larger_set_and_a_randomized_one_is_no_larger(bundle):
    model, context = load_bundle(bundle), "we had a very"
    sizes = [len(model.next_words([context], coverage=level)[0].words) for level in (0.1, 0.5, 0.9)]
    assert sizes == sorted(sizes)
    randomized = [model.next_words([context], coverage=0.9, randomized=True)[0].words for _ in range(2)]
    assert randomized[0] == randomized[1]
    assert len(randomized[0]) <= sizes[-1]


def test_a_result_of_the_cache_has_its_set(bundle):
    model, context = load_bundle(bundle), "we had a very"
    model.use_cache(1 << 22)
    query = model.next_words_query(context, coverage=0.5)
    first = model.result(query, model.run_next_words(query.parts()))
    known = model.next_words_query(context, coverage=0.5), model.next_words_query(context, 5)
    assert [query.parts() for query in known] == [(), ()]
    again, five = (model.result(query, []) for query in known)
    assert (again.words, again.calibration_examples) == (first.words, 99)
    assert (len(five.words), five.calibration_examples) == (5, None)


def test_manifest_and_summary_tell_the_examples(bundle):
    config = load_bundle(bundle).manifest.config
    assert FILE in config.files()
    assert config.summary()["calibration_examples"] == 99
    assert "99 calibration examples, of the 50 most probable" in config.description()["sets of next words"]


def test_a_file_of_another_size_is_refused(bundle, tmp_path):
    path = tmp_path / "next-word" / "4"
    shutil.copytree(bundle, path)
    (path / FILE).write_bytes((path / FILE).read_bytes()[:-16])
    content = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    content["files"][FILE] = sha256_of(path / FILE)
    (path / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(BundleError, match="does not hold 99 calibration examples"):
        load_bundle(path)
