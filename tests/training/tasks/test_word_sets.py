"""Calibration examples of next words, of models that need no network."""

import shutil
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from models.store import BUNDLED, load_bundle
from training.cli.calibrating import calibrate_bundle
from training.tasks.causal_language_model.following import FOLLOWING as SUBWORDS
from training.tasks.language_model.following import FOLLOWING as WORDS
from training.tasks.word_sets import FEWEST, Followed, Following, refitted_sets, word_sets


@dataclass(frozen=True)
class Candidate:
    word: str
    probability: float


class Parrot:
    """After every context the words a, b and c, with probabilities that halve."""

    most_words = 3

    def next_words(self, contexts, top_k):
        candidates = [Candidate(word, 2.0**-place) for place, word in enumerate("abc", start=1)]
        return [SimpleNamespace(words=candidates[:top_k]) for _ in contexts]


def test_a_row_has_rank_and_probabilities_of_the_word_that_follows():
    examples = [Followed("x", lambda each, word=word: each.word == word) for word in "bad"]
    unit = Following("word", lambda *_: None)
    found = unit.rows(Parrot(), examples)
    assert found.tolist() == [[0, 2, 0.5, 0.25], [0, 1, 0.0, 0.5], [0, 4, 0.875, 0.0]]
    assert replace(unit, most_listed=1).rows(Parrot(), examples).tolist()[0] == [0, 2, 0.5, 0.0], "it is not listed"


@pytest.fixture(scope="module")
def words():
    return load_bundle(BUNDLED / "next-word" / "4")


@pytest.fixture(scope="module")
def subwords():
    return load_bundle(BUNDLED / "next-word" / "5")


TEXTS = ["we had a very good time", "he is a teacher", "Where is it?", ""]


def test_a_text_is_an_example_of_the_word_that_follows_a_beginning(words):
    (unit,) = WORDS
    found = list(unit.examples(words, TEXTS))
    assert len(found) == 4, "the sentence end follows the empty text"
    assert [each.context for each in found] == [each.context for each in unit.examples(words, TEXTS)]
    for text, each in zip(TEXTS, found, strict=True):
        spelled = words.spelled(words.token_ids(text))
        place = len(each.context.split())
        assert each.context.split() == spelled[:place]
        follows = SimpleNamespace(word="</s>" if place == len(spelled) else spelled[place], sentence_end=False)
        follows.sentence_end = place == len(spelled)
        assert each.follows(follows)


@pytest.mark.parametrize("unit", SUBWORDS, ids=lambda each: each.unit)
def test_what_follows_is_in_the_text_of_a_model_of_subwords(subwords, unit):
    found = list(unit.examples(subwords, TEXTS))
    assert len(found) == 3, "nothing follows in an empty text"
    for text, each in zip(TEXTS, found, strict=False):
        assert text.startswith(each.context)
        candidates = subwords.next_words([each.context], 500, **unit.options)[0].words
        matching = [candidate for candidate in candidates if each.follows(candidate)]
        assert len(matching) <= 1
        if matching:
            assert text[len(each.context) :].lstrip().startswith(matching[0].word.strip())


def test_texts_that_are_too_long_are_left_out(words):
    assert list(WORDS[0].examples(words, ["a " * 5000])) == []


def test_few_texts_make_no_sets(words):
    assert word_sets(words, TEXTS, WORDS) is None


def test_an_imported_bundle_needs_texts(words):
    with pytest.raises(ValueError, match="give texts, one on each line, by --texts"):
        refitted_sets(words, None, None, WORDS)


def test_calibrate_adds_sets_to_a_bundle(words, tmp_path):
    bundle = tmp_path / "next-word" / "4"
    shutil.copytree(BUNDLED / "next-word" / "4", bundle)
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"we had {word} good time" for word in ["a", "a very"] * FEWEST), encoding="utf-8")
    manifest = calibrate_bundle(bundle, tmp_path, texts)
    assert manifest.config.sets.word.examples == 2 * FEWEST
    model = load_bundle(bundle)
    found = model.next_words(["we had a very good"], coverage=0.9)[0]
    assert found.calibration_examples == 2 * FEWEST
    assert "time" in [each.word for each in found.words]
    assert model.next_words(["we had"], 1)[0].words == words.next_words(["we had"], 1)[0].words
