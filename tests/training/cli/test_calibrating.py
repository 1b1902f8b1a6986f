"""Tests of `softserve-train calibrate`."""

import shutil
from pathlib import Path

import pytest

from models import Classifier, QueryError
from models.reading import validate
from models.store import load_bundle
from training.bundling.bundle import WrittenBundle
from training.cli.calibrating import calibrate_bundle
from training.tasks.calibrated_classes import ScopeRates
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import TranslationRecipe


@pytest.fixture
def bundle(errands_export: WrittenBundle, tmp_path: Path) -> Path:
    copy = tmp_path / errands_export.path.parent.name / errands_export.path.name
    shutil.copytree(errands_export.path, copy)
    return copy


@pytest.fixture
def labelled(errands_export: WrittenBundle, tmp_path: Path) -> Path:
    labels = (errands_export.path / "labels.txt").read_text(encoding="utf-8").split()[:-1]
    file = tmp_path / "labelled.tsv"
    file.write_text("".join(f"{label}\ttext {number}\n" for number in range(12) for label in labels))
    return file


def test_a_bundle_is_calibrated_on_its_validation_split(bundle: Path, tiny_data_dir: Path) -> None:
    before = load_bundle(bundle).manifest
    weights = {name: checksum for name, checksum in before.files.items() if name.endswith((".onnx", ".pt"))}
    changed = calibrate_bundle(bundle, tiny_data_dir)
    assert validate(bundle) == []
    assert weights.items() <= changed.files.items()
    assert changed.config.classes == before.config.classes, "as the export did"
    assert changed.quality == before.quality
    card = (bundle / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert card.count("## Calibration\n") == 1
    assert card.count("## Limits\n") == card.count("## Quality\n") == 1


def test_a_bundle_answers_with_prediction_sets(bundle: Path, tiny_data_dir: Path) -> None:
    calibrate_bundle(bundle, tiny_data_dir)
    model = load_bundle(bundle)
    assert isinstance(model, Classifier)
    examples = model.config.classes.prediction_sets.examples
    (found,) = model.classify(["walk"], coverage=0.8)
    assert found.calibration_examples == examples
    assert len(found.labels) >= 1
    assert model.classify(["walk"])[0].calibration_examples is None
    assert (
        model.classify(["walk"], coverage=0.8, randomized=True)
        == model.classify(["walk", "run"], coverage=0.8, randomized=True)[:1]
    ), "other texts change nothing"
    with pytest.raises(QueryError, match="calibration examples, and this model has"):
        model.classify(["walk"], coverage=0.9999)
    with pytest.raises(QueryError, match="read as a whole"):
        model.classify(["walk"], coverage=0.8, windows="mean")


def test_a_file_cannot_set_the_rule_of_scope(bundle: Path, labelled: Path, tiny_data_dir: Path) -> None:
    before = (bundle / "manifest.json").read_bytes()
    with pytest.raises(ValueError, match="out of scope needs the validation split"):
        calibrate_bundle(bundle, tiny_data_dir, labelled)
    assert (bundle / "manifest.json").read_bytes() == before


def test_the_rule_of_scope_is_chosen_by_a_rate(bundle: Path, labelled: Path, tiny_data_dir: Path) -> None:
    rule = calibrate_bundle(bundle, tiny_data_dir, rates=ScopeRates(reject=0.2)).config.classes.out_of_scope
    assert rule.rejected == pytest.approx(0.2, abs=0.1)
    assert rule.detected is not None
    assert validate(bundle) == []
    passing = calibrate_bundle(bundle, tiny_data_dir, rates=ScopeRates(passed=1 - rule.detected))
    assert passing.config.classes.out_of_scope.detected == pytest.approx(rule.detected, abs=0.01)
    varied = [
        line.replace("text", "text " * (place % 7)) for place, line in enumerate(labelled.read_text().splitlines())
    ]
    labelled.write_text("\n".join(varied))
    of_file = calibrate_bundle(bundle, tiny_data_dir, labelled, ScopeRates(reject=0.1)).config.classes.out_of_scope
    assert of_file.detected is None
    assert of_file.rejected == pytest.approx(0.1, abs=0.1)
    before = (bundle / "manifest.json").read_bytes()
    with pytest.raises(ValueError, match="reject_rate must be from"):
        calibrate_bundle(bundle, tiny_data_dir, rates=ScopeRates(reject=0.99))
    assert (bundle / "manifest.json").read_bytes() == before


@pytest.fixture
def translator(pairs_export: WrittenBundle, tmp_path: Path) -> Path:
    copy = tmp_path / pairs_export.path.parent.name / pairs_export.path.name
    shutil.copytree(pairs_export.path, copy)
    return copy


def test_the_confidence_of_a_translator_is_fitted_on_the_pairs_of_a_file(
    translator: Path, pairs_recipe: TranslationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    before = load_bundle(translator).manifest
    pairs = split_pairs(pairs_recipe.data, "dev", tiny_data_dir)
    file = tmp_path / "pairs.tsv"
    lines = [f"{source}\t{target if len(source) < 25 else '##'}\n" for source, target in pairs * 12]
    file.write_text("".join(lines), encoding="utf-8")
    changed = calibrate_bundle(translator, tiny_data_dir, file)
    assert validate(translator) == []
    assert changed.config.confidence.fitted_on == "pairs.tsv"
    assert changed.config.confidence.sentences > len(lines)
    assert changed.config.sets.examples == len(lines)
    weights = {name: checksum for name, checksum in before.files.items() if name != "MODEL_CARD.md"}
    assert weights.items() <= changed.files.items()
    assert changed.quality == before.quality
    for _ in range(2):
        card = (translator / "MODEL_CARD.md").read_text(encoding="utf-8")
        assert card.count("Answers have a `confidence`") == 1
        assert f"fitted on {changed.config.confidence.sentences:,} sentences: pairs.tsv" in card
        calibrate_bundle(translator, tiny_data_dir, file)
    (found,) = load_bundle(translator).translate([pairs[0][0]], coverage=0.2)
    assert found.confidence is not None
    assert found.calibration_examples == len(lines)


def test_sets_of_a_translator_are_left_out_where_there_are_too_few_sentences(
    translator: Path, pairs_recipe: TranslationRecipe, tiny_data_dir: Path, tmp_path: Path
) -> None:
    pairs, file = split_pairs(pairs_recipe.data, "dev", tiny_data_dir), tmp_path / "pairs.tsv"
    for copies, examples in ((12, len(pairs) * 12), (2, None)):
        lines = [f"{source}\t{target if len(source) < 25 else '##'}\n" for source, target in pairs * copies]
        file.write_text("".join(lines), encoding="utf-8")
        sets = calibrate_bundle(translator, tiny_data_dir, file).config.sets
        assert (sets and sets.examples) == examples
        assert validate(translator) == []
    assert not (translator / "translation_scores.bin").exists()


def test_a_translator_is_not_calibrated_on_too_little(translator: Path, tiny_data_dir: Path, tmp_path: Path) -> None:
    before = (translator / "manifest.json").read_bytes()
    file = tmp_path / "pairs.tsv"
    file.write_text("a\tb\n")
    with pytest.raises(ValueError, match="at least 20 poor translations"):
        calibrate_bundle(translator, tiny_data_dir, file)
    with pytest.raises(ValueError, match="a rate is for classifiers"):
        calibrate_bundle(translator, tiny_data_dir, file, ScopeRates(reject=0.1))
    assert (translator / "manifest.json").read_bytes() == before
