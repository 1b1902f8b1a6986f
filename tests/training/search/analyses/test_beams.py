"""Tests of comparing searches of text generators."""

import csv
from pathlib import Path

import pytest

from models.store import load_bundle
from models.tasks.text_generation import Generator
from training.bundling.bundle import WrittenBundle
from training.cli.analyses import beams
from training.search.analyses.beams import SEARCHES, beam_rows
from training.tasks.text_generation.quality import bundle_generation
from training.tasks.text_generation.reading import read_source_targets
from training.tasks.text_generation.settings import GenerationRecipe


def test_every_search_is_measured(notes_export: WrittenBundle, notes_recipe: GenerationRecipe, notes_dir: Path) -> None:
    model = load_bundle(notes_export.path, threads=1)
    assert isinstance(model, Generator)
    rows = beam_rows({"notes": model}, "test", notes_dir, limit=10)
    assert [row[:3] for row in rows.rows] == [("notes", search, 10) for search in SEARCHES]
    texts = read_source_targets(notes_recipe.data, "test", notes_dir)[:10]
    assert rows.rows[1][3:] == pytest.approx(list(bundle_generation(model, texts).values()))


def test_the_command_writes_a_table(
    notes_export: WrittenBundle, notes_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert beams((notes_export.path,), data_dir=notes_dir, limit=4, output=tmp_path) == 0
    with (tmp_path / "beams.csv").open(encoding="utf-8") as file:
        assert [row["search"] for row in csv.DictReader(file)] == list(SEARCHES)
    assert "outputs for test" in capsys.readouterr().out


def test_other_bundles_are_refused(babbler_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a bundle of task 'translation', which does not offer 'generate'"):
        beams((babbler_bundle,), data_dir=tmp_path)
    with pytest.raises(ValueError, match="at least one bundle directory"):
        beams(())
