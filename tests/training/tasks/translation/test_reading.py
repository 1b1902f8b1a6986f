"""Tests of reading the pairs of a translation model."""

from pathlib import Path

import pytest

from training.data.augmentation import Augmentation
from training.data.corpus import Corpus
from training.tasks.translation.reading import split_pairs, training_pairs
from training.tasks.translation.settings import PairSettings, TranslationRecipe


def test_an_epoch_has_further_corpora_and_changed_copies(
    pairs_recipe: TranslationRecipe, tiny_data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pairs_recipe.data
    plain = split_pairs(data, "train", tiny_data_dir)
    assert training_pairs(data, tiny_data_dir, 1) == plain
    more = data.model_copy(update={"also": {"everyday-de-en": 2}})
    everyday = training_pairs(more, tiny_data_dir, 1)[len(plain) :]
    assert everyday[: len(everyday) // 2] * 2 == everyday
    assert ("Danke!", "Thanks!") in everyday
    augment = Augmentation(lower_case=0.5, copies=1)
    changed = training_pairs(more.model_copy(update={"augment": augment}), tiny_data_dir, 1)
    assert len(changed) > len(plain) + len(everyday)
    assert not any("{" in source or "{" in target for source, target in changed)
    assert [each["licence"] for each in more.sources()] == [data.sources()[0]["licence"], "Apache-2.0"]


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
