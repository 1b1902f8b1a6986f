"""Tests of the sentences with names."""

import pytest

from benchmarks.name_sentences import NAMES_NOT_LISTED, listed_names, name_sentences, names_copied
from training.data.corpora import get_corpus
from training.data.names import NAME_KINDS


def test_the_names_of_the_second_set_are_not_listed_for_training():
    listed = listed_names()
    assert set(listed) == set(NAMES_NOT_LISTED) == set(NAME_KINDS)
    for kind in NAME_KINDS:
        assert not set(NAMES_NOT_LISTED[kind]) & {name for names in listed.values() for name in names}


def test_sentences_hold_their_names_and_are_no_training_phrases(tmp_path):
    phrases = {source for source, _ in get_corpus("everyday-de-en").records("train", tmp_path)}
    templates = name_sentences({kind: [f"{{{kind}}}"] for kind in NAME_KINDS}, count=20)
    assert len({text for text, _ in templates}) == 20
    assert not {text for text, _ in templates} & phrases
    for text, names in name_sentences(NAMES_NOT_LISTED):
        assert names_copied(names, text)
        assert "{" not in text


@pytest.mark.parametrize(
    ("translation", "copied"),
    [("Anna is from Ulm.", True), ("Ann is from Ulm.", False), ("Anna's in Ulm", True), ("Annas in Ulm", False)],
)
def test_all_names_must_be_whole_words(translation, copied):
    assert names_copied(("Anna", "Ulm"), translation) is copied
