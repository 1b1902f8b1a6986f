"""Tests of reading the pairs of a translation model."""

from pathlib import Path

import pytest

from training.data.augmentation import Augmentation
from training.data.corpus import Corpus
from training.tasks.translation.reading import TrainingPairs, split_pairs
from training.tasks.translation.settings import PairSettings, TranslationRecipe


def test_an_epoch_has_further_corpora_and_changed_copies(pairs_recipe: TranslationRecipe, tiny_data_dir: Path) -> None:
    data = pairs_recipe.data
    plain = split_pairs(data, "train", tiny_data_dir)
    assert TrainingPairs(data, tiny_data_dir, 1).epoch(0) == plain
    more = data.model_copy(update={"also": {"everyday-de-en": 2}})
    everyday = TrainingPairs(more, tiny_data_dir, 1).epoch(0)[len(plain) :]
    assert everyday.count(("Danke!", "Thanks!")) == 2
    augment = Augmentation(lower_case=0.5, copies=1)
    pairs = TrainingPairs(more.model_copy(update={"augment": augment}), tiny_data_dir, 1)
    changed = pairs.epoch(0)
    assert len(changed) > len(plain) + len(everyday)
    assert not any("{" in source or "{" in target for source, target in everyday + changed)
    assert pairs.epoch(0) == changed != pairs.epoch(1)
    assert TrainingPairs(data, tiny_data_dir, 2).epoch(0) == plain
    assert [each["licence"] for each in more.sources()] == [data.sources()[0]["licence"], "Apache-2.0"]


def test_slots_of_own_texts_stay(pairs_recipe: TranslationRecipe, tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text("".join(f"Hallo {{name}} {i}\tHello {{foo}} {i}\n" for i in range(40)))
    own = {"files": {"train": "own.tsv"}, "source": "de", "target": "en", "augment": {"lower_case": 0.5}}
    for source, target in TrainingPairs(PairSettings.model_validate(own), tmp_path, 1).epoch(0):
        assert "allo {name}" in source
        assert "Hello {foo}" in target


def test_limit_cuts_every_split(pairs_recipe: TranslationRecipe, tiny_data_dir: Path) -> None:
    data = pairs_recipe.data.model_copy(update={"limit": 7})
    assert [len(split_pairs(data, split, tiny_data_dir)) for split in ("train", "dev", "test")] == [7, 7, 7]


@pytest.mark.parametrize(("source", "target", "wrong"), [("fr", "en", "fr"), ("de", "nl", "nl")])
def test_an_unknown_column_names_the_known_ones(
    source: str, target: str, wrong: str, pairs_corpus: Corpus, tiny_data_dir: Path
) -> None:
    data = PairSettings(corpus="numerals", source=source, target=target)
    with pytest.raises(ValueError, match=f"corpus 'numerals' has no column '{wrong}'; it has de, en"):
        split_pairs(data, "dev", tiny_data_dir)
