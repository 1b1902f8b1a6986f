"""Tests of reading the pairs of a translation model."""

from pathlib import Path
from typing import Any

import pytest

from training.data.augmentation import Augmentation
from training.data.corpus import Corpus
from training.tasks.translation.reading import TrainingPairs, split_pairs
from training.tasks.translation.settings import PairSettings, TranslationRecipe


def _with(data: PairSettings, **fields: Any) -> PairSettings:
    return PairSettings.model_validate({**data.model_dump(exclude={"files"}), **fields})


def test_an_epoch_has_further_corpora_and_changed_copies(pairs_recipe: TranslationRecipe, tiny_data_dir: Path) -> None:
    data = pairs_recipe.data
    plain = split_pairs(data, "train", tiny_data_dir)
    assert TrainingPairs(data, tiny_data_dir, 1).epoch(0) == plain
    more = _with(data, also={"everyday-de-en": 2})
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


def test_corpora_are_balanced_by_drawing_anew(pairs_recipe: TranslationRecipe, tiny_data_dir: Path) -> None:
    data = pairs_recipe.data
    plain = split_pairs(data, "train", tiny_data_dir)
    drawn = TrainingPairs(_with(data, draw=9, also={"numerals": {"draw": 5, "copies": 2}}), tiny_data_dir, 1)
    first, second = drawn.epoch(0), drawn.epoch(1)
    assert len(first) == len(second) == 9 + 2 * 5
    assert first != second
    assert set(first) <= set(plain)
    assert first == drawn.epoch(0)
    augment = {"upper_case": 0.9, "copies": 1}
    kept = TrainingPairs(
        _with(data, augment=augment, also={"numerals": {"draw": 5, "augment": False}}), tiny_data_dir, 1
    ).epoch(0)
    assert kept[-5:] == [pair for pair in kept[-5:] if pair in plain], "no copy is changed"
    assert len([pair for pair in kept if pair not in plain]) > 0.3 * len(plain)


def test_a_number_of_copies_is_written_as_one() -> None:
    content = {"corpus": "tatoeba-de-en", "source": "de", "target": "en"}
    also = {"everyday-de-en": 12, "docs-de-en": {"draw": 1000, "augment": False}}
    written = PairSettings.model_validate({**content, "also": also}).model_dump(exclude_defaults=True)["also"]
    assert written == also


def test_further_development_pairs_select_the_model(pairs_recipe: TranslationRecipe, tiny_data_dir: Path) -> None:
    data = pairs_recipe.data
    plain = split_pairs(data, "dev", tiny_data_dir)
    more = _with(data, also={"numerals": {"dev": 3}, "everyday-de-en": 1})
    assert split_pairs(more, "dev", tiny_data_dir) == plain + plain[:3]
    assert split_pairs(more, "test", tiny_data_dir) == split_pairs(data, "test", tiny_data_dir)
    assert [more.dataset(split) for split in ("dev", "test")] == ["numerals + numerals", "numerals"]


def test_the_sources_of_a_corpus_are_named_one_by_one() -> None:
    content = {"corpus": "tatoeba-de-en", "source": "de", "target": "en", "also": {"docs-de-en": 1, "ui-de-en": 1}}
    sources = PairSettings.model_validate(content).sources()
    assert sources[0]["name"] == "tatoeba-de-en"
    assert len(sources) == 1 + 127, "corpora of one collection share its sources"
    assert {"name", "homepage", "licence"} == set(sources[1])
    licences = {each["licence"] for each in sources[1:]}
    assert licences == {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "MIT", "MPL-2.0"}
    assert all("/tree/" in each["homepage"] or "@" in each["homepage"] for each in sources[1:])


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
