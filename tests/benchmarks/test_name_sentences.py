"""Tests of the sentences with names."""

import pytest

from benchmarks.name_sentences import NAMES_NOT_LISTED, listed_names, name_sentences, names_copied
from training.data.corpora import get_corpus
from training.data.names import NAME_KINDS


@pytest.mark.parametrize("split", NAMES_NOT_LISTED)
def test_the_other_names_are_not_listed_for_training(split):
    listed, others = listed_names(), NAMES_NOT_LISTED[split]
    assert set(listed) == set(others) == set(NAME_KINDS)
    for kind in NAME_KINDS:
        assert not set(others[kind]) & {name for names in listed.values() for name in names}


@pytest.mark.parametrize(("split", "count"), [("dev", 12), ("test", 20)])
def test_sentences_hold_their_names_and_are_no_training_phrases(split, count, tmp_path):
    phrases = {source for source, _ in get_corpus("everyday-de-en").records("train", tmp_path)}
    templates = name_sentences({kind: [f"{{{kind}}}"] for kind in NAME_KINDS}, split, count=count)
    assert len({text for text, _ in templates}) == count
    assert not {text for text, _ in templates} & phrases
    for text, names in name_sentences(NAMES_NOT_LISTED[split], split):
        assert names_copied(names, text)
        assert "{" not in text


def test_development_and_test_have_no_name_or_template_in_common():
    dev, test = ({name for names in NAMES_NOT_LISTED[split].values() for name in names} for split in ("dev", "test"))
    assert not dev & test
    slots = {kind: [f"{{{kind}}}"] for kind in NAME_KINDS}
    dev, test = ({text for text, _ in name_sentences(slots, split)} for split in ("dev", "test"))
    assert not dev & test


@pytest.mark.parametrize(
    ("translation", "copied"),
    [("Anna is from Ulm.", True), ("Ann is from Ulm.", False), ("Anna's in Ulm", True), ("Annas in Ulm", False)],
)
def test_all_names_must_be_whole_words(translation, copied):
    assert names_copied(("Anna", "Ulm"), translation) is copied
