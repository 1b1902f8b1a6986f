"""The confidence in a translation: its signals, its probability, and its fields in answers."""

import math

import numpy as np
import pytest

from models.decoding.beam_search import Hypothesis, SearchOptions
from models.reading import parse_manifest
from models.tasks.translation import Translator
from models.tasks.translation_confidence import SIGNALS, Confidence, signals
from models.text.markup import Markup


def confidence(*, threshold=0.5, intercept=0.0, **weights):
    """A confidence in which each signal counts as it is."""
    return {
        "signals": {name: {"mean": 0.0, "deviation": 1.0, "weight": weights.get(name, 0.0)} for name in SIGNALS},
        "intercept": intercept,
        "poor_chrf": 30.0,
        "threshold": threshold,
        "precision": 0.5,
        "recall": 0.5,
        "auroc": 0.8,
        "calibration_error": 0.02,
        "sentences": 100,
    }


def hypothesis(*log_probabilities, tokens=None):
    """A hypothesis whose tokens, and end, have these log-probabilities."""
    sums = np.cumsum(log_probabilities)
    tokens = (68,) * (len(log_probabilities) - 1) if tokens is None else tokens
    return Hypothesis(tokens, float(sums[-1]), float(sums[-1]) / len(sums), None, sums)


@pytest.fixture(scope="module")
def rated(babblers):
    """Returns the babbling translator with a confidence."""

    def build(**fields):
        plain = babblers["onnx"]
        content = plain.manifest.model_dump(mode="json")
        content["config"]["confidence"] = confidence(**fields)
        return Translator(parse_manifest(content), plain._tokenizer, plain.backend)

    return build


def test_signals_are_those_of_the_hypothesis() -> None:
    found = signals(
        "der Hund",
        (5, 6),
        "the dog barks",
        hypothesis(-0.5, -2.5, -1.0, -0.0, tokens=(7, 8, 9)),
        failed_check=False,
        other_language=True,
        language_probability=0.01,
    )
    assert found == pytest.approx(
        {
            "mean_log_probability": -1.0,
            "lowest_log_probability": -2.5,
            "deviation": math.sqrt((0.25 + 2.25 + 0 + 1) / 4),
            "unlikely": 0.25,
            "source_length": math.log(3),
            "length_ratio": math.log(4 / 3),
            "length_difference": math.log(4 / 3),
            "token_characters": 4.0,
            "failed_check": 0.0,
            "copied": 0.0,
            "other_language": 1.0,
            "repetition": 0.0,
            "excess_length": 0.0,
            "overlap": 0.0,
            "changed_other_language": 1.0,
        }
    )
    copied = _signals_of("Hund", (1, 2, 3), "hund", (68,), failed_check=True)
    assert (copied["copied"], copied["failed_check"], copied["length_difference"]) == (1, 1, math.log(2))
    assert (copied["overlap"], copied["changed_other_language"]) == (1, 0)


def _signals_of(source, source_tokens, target, tokens, *, failed_check=False, language_probability=1.0):
    found = hypothesis(*[-1.0] * (len(tokens) + 1), tokens=tokens)
    return signals(
        source,
        source_tokens,
        target,
        found,
        failed_check=failed_check,
        other_language=False,
        language_probability=language_probability,
    )


def test_trigrams_of_tokens_that_the_source_does_not_repeat_count_as_repetition() -> None:
    # 1 2 3, 2 3 1, 3 1 2, 1 2 3, 2 3 1: two of five trigrams occurred before.
    assert _signals_of("a", (5,), "b", (1, 2, 3, 1, 2, 3, 1))["repetition"] == pytest.approx(0.4)
    assert _signals_of("a", (6, 5, 4, 6, 5, 4, 6), "b", (1, 2, 3, 1, 2, 3, 1))["repetition"] == 0
    assert _signals_of("a", (1, 2), "b", (3, 3))["repetition"] == 0


def test_a_source_has_excess_length_from_50_tokens_on() -> None:
    assert _signals_of("a", (1,) * 49, "b", (2,))["excess_length"] == 0
    assert _signals_of("a", (1,) * 99, "b", (2,))["excess_length"] == pytest.approx(math.log(2))


def test_overlap_is_the_fraction_of_the_sources_trigrams_of_characters() -> None:
    # " ab", "abc", "bc " of which the target " abd " has the first.
    found = _signals_of("abc", (1,), "ABD", (2,), language_probability=1e-9)
    assert found["overlap"] == pytest.approx(1 / 3)
    assert found["changed_other_language"] == pytest.approx(5 * 2 / 3), "the probability counts as 1e-6"
    possible = _signals_of("abc", (1,), "def", (2,), language_probability=0.1)
    assert possible["changed_other_language"] == 0
    assert _signals_of("", (1,), "", (2,))["overlap"] == 1


def test_a_probability_is_that_of_the_logistic_function() -> None:
    model = Confidence.model_validate(confidence(intercept=0.5, mean_log_probability=2.0, copied=-1.0))
    found = dict.fromkeys(SIGNALS, 0.0) | {"mean_log_probability": -1.0, "copied": 1.0}
    assert model.probability(found) == pytest.approx(1 / (1 + math.exp(2.5)))
    far = found | {"mean_log_probability": -1e9}  # counts as 4 deviations
    assert model.probability(far) == pytest.approx(1 / (1 + math.exp(8.5)))
    assert model.probability(found | {"repetition": 0.75}) == pytest.approx(0.25 / (1 + math.exp(2.5)))
    steep = Confidence.model_validate(confidence(intercept=1e6))
    assert 0.999 < steep.probability(found) <= 1


def test_a_bundle_of_before_has_fewer_signals() -> None:
    content = confidence(copied=-1.0)
    content["signals"] = {"copied": content["signals"]["copied"]}
    found = dict.fromkeys(SIGNALS, 0.0) | {"copied": 1.0}
    assert Confidence.model_validate(content).probability(found) == pytest.approx(1 / (1 + math.e))
    for other in ({}, {"luck": content["signals"]["copied"]}):
        wrong = content | {"signals": other}
        with pytest.raises(ValueError, match="signals"):
            Confidence.model_validate(wrong)


def test_a_text_has_the_confidence_of_its_least_likely_sentence(rated) -> None:
    model = rated(mean_log_probability=1.0, threshold=0.3)
    query = model.query("Der Hund. Die Katze.")
    sure, unsure = hypothesis(-0.1, -0.1), hypothesis(-2.0, -2.0)
    for outputs, expected, low in (
        ([[sure], [sure]], 1 / (1 + math.exp(0.1)), False),
        ([[sure], [unsure]], 1 / (1 + math.exp(2.0)), True),
    ):
        found = model.result(query, outputs)
        assert found.confidence == pytest.approx(expected)
        assert found.low_confidence == low
        assert found.translations[0].sentences is None


def test_a_failed_check_is_low_whatever_the_confidence(rated) -> None:
    model = rated(threshold=0.0, intercept=5.0)
    (id_,) = model._tokenizer.encode_batch(["ja"])
    query = model.query("Um 12 Uhr")
    found = model.result(query, [[hypothesis(*[-0.1] * (len(id_) + 1), tokens=tuple(id_))]])
    assert found.confidence > 0.99
    assert found.low_confidence


def test_nothing_to_translate_has_no_confidence(rated) -> None:
    (found,) = rated().translate([" \n"])
    assert found.confidence is None


def test_sentences_and_words_are_rated(rated) -> None:
    model = rated(mean_log_probability=1.0)
    text = " Der Hund beißt.\n Die Katze in 12."
    (found,) = model.translate([text], options=SearchOptions(n_best=2), confidences=True)
    assert len(found.translations) == 2
    for each in found.translations:
        assert each.sentences is not None
        assert [text[slice(*one.source)] for one in each.sentences] == ["Der Hund beißt.", "Die Katze in 12."]
        for one in each.sentences:
            assert one.confidence is not None
            assert 0 <= one.confidence <= 1
            words = [each.text[slice(*word.target)] for word in one.words]
            assert "".join(words) == "".join(each.text[slice(*one.target)].split())
            assert all(0 <= word.confidence <= 1 for word in one.words)
    least = min(one.confidence for one in found.translations[0].sentences)
    assert found.confidence == least


def test_the_confidence_of_a_word_is_the_product_of_its_tokens_probabilities(babblers) -> None:
    model = babblers["onnx"]
    (ids,) = model._tokenizer.encode_batch(["Hund beißt"])
    values = [-0.1 * (place + 1) for place in range(len(ids) + 1)]
    found = model.result(
        model.query("der Hund", options=SearchOptions(), confidences=True), [[hypothesis(*values, tokens=tuple(ids))]]
    )
    (sentence,) = found.translations[0].sentences
    product = math.prod(word.confidence for word in sentence.words)
    assert product == pytest.approx(math.exp(sum(values[:-1])))
    assert sentence.confidence is None, "the bundle has no confidence"
    assert len(sentence.words) == 2


def test_markup_has_the_least_confidence_of_its_blocks_and_none_of_words(rated) -> None:
    model = rated(mean_log_probability=1.0)
    (found,) = model.translate(["<p>Der Hund</p><p>Die Katze</p>"], markup=Markup("html"))
    each = [model.translate([text])[0].confidence for text in ("Der Hund", "Die Katze")]
    assert found.confidence == pytest.approx(min(each), abs=1e-5)
    with pytest.raises(ValueError, match="confidences: there is none of texts with markup"):
        model.query("<p>a</p>", markup=Markup("html"), confidences=True)
