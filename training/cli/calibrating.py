"""`softserve-train calibrate`: fit the probabilities of a classifier, the confidence and sets of a translator, or the
sets of next words of a language model again.

Graphs and weights of the bundle stay.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from models.bundle.manifest import MANIFEST, Manifest
from models.reading import load_manifest, sha256_of
from models.store import load_bundle
from models.tasks.labels import ClassesConfig
from training.bundling.model_card import with_calibration, with_quality
from training.importing.samples import read_samples
from training.output import console
from training.recipe.loading import parse_recipe
from training.tasks.calibrated_classes import (
    DIAGRAM,
    CalibratedClasses,
    ScopeRates,
    calibration_section,
    quality_columns,
)
from training.tasks.class_calibration import SCORES, ValidationExamples
from training.tasks.classification_quality import ScopeScores
from training.tasks.registry import TASKS
from training.tasks.task import Refitted

__all__ = ["calibrate", "calibrate_bundle"]


def calibrate(
    bundle: Annotated[Path, tyro.conf.Positional],
    data_dir: Path = Path("data"),
    texts: Path | None = None,
    reject_rate: float | None = None,
    pass_rate: float | None = None,
) -> int:
    """Fits probabilities and sets of a classifier, confidence and sets of a translator, or sets of next words.

    The bundle is changed; its weights and graphs stay. Of a classifier this also sets the threshold below which an
    input is out of scope: by default the one that tells examples of a class from examples of none best, where there are
    such.

    Args:
        bundle: A bundle directory.
        data_dir: Directory that holds the corpora, for the validation and test splits of the bundle's recipe.
        texts: File of lines label<TAB>text, .tsv, in place of the validation split: texts that the model was not
            trained on. Several labels are separated by commas. Of a translation model, lines text<TAB>translation; of
            a language model, lines of text.
        reject_rate: Fraction of the texts in scope that may be refused as out of scope, such as 0.02.
        pass_rate: Fraction of the texts out of scope that may pass, in place of it.
    """
    if reject_rate is not None and pass_rate is not None:
        raise ValueError("give either --reject-rate or --pass-rate")
    rates = None if reject_rate is None and pass_rate is None else ScopeRates(reject_rate, pass_rate)
    manifest = calibrate_bundle(bundle.resolve(), data_dir, texts, rates)
    for name, value in manifest.config.description().items():
        console.print(f"{name}: {value}", highlight=False)
    return 0


def calibrate_bundle(
    bundle: Path, data_dir: Path, texts: Path | None = None, rates: ScopeRates | None = None
) -> Manifest:
    """Fit calibration, prediction sets and thresholds, a confidence or sets of words, and return the changed manifest.

    `rates` is what the rule for inputs of no class is chosen by.

    Raises `ValueError` for bundles of other tasks, imported ones without `texts`, too few examples, and rates that no
    threshold has, and `BundleError` for an invalid bundle; the bundle is as it was then.
    """
    manifest: Any = load_manifest(bundle)
    model = load_bundle(bundle)
    content = manifest.model_dump(mode="json")
    if not isinstance(manifest.config, ClassesConfig):
        return _refitted(bundle, manifest, content, _found(model, data_dir, texts, rates))
    if texts is None:
        examples, outside, scores = _of_recipe(model, data_dir)
    else:
        examples, outside, scores = _of_file(model, texts, chosen=rates is not None), None, None
    found = CalibratedClasses.of(examples, len(model.labels))
    if found.fitted.calibration is None and found.sets is None and rates is None:
        raise ValueError(f"nothing is gained by a calibration on {len(examples)} examples")
    content["config"]["classes"] = found.section(manifest.config.classes, outside, rates, scores)

    def complete(directory: Path) -> None:
        content["quality"] = _measured(directory, data_dir) if texts is None else _held_out(content, found, texts.name)

    return _placed(bundle, content, lambda text, after: _changed_card(text, manifest, after), found.files, complete)


def _found(model: Any, data_dir: Path, texts: Path | None, rates: ScopeRates | None) -> Refitted:
    """Return the fields that are fitted of a bundle that is no classifier."""
    if rates is not None:
        raise ValueError("a rate is for classifiers")
    manifest = model.manifest
    recipe = parse_recipe(manifest.provenance.recipe) if manifest.provenance.recipe else None
    found = TASKS[manifest.task].refitted(model, recipe, data_dir, texts)
    if not found.fields:
        raise ValueError(f"{manifest.name} is no classifier, translation model or language model")
    return found


def _refitted(bundle: Path, manifest: Any, content: dict[str, Any], found: Refitted) -> Manifest:
    content["config"] |= found.fields
    card = TASKS[manifest.task].exporter.card
    former = manifest.config.files() - type(manifest.config).model_validate(content["config"]).files()
    files = {**dict.fromkeys(former), **found.files}
    return _placed(bundle, content, lambda text, after: with_quality(text, card(manifest), card(after)), files)


def _placed(
    bundle: Path,
    content: dict[str, Any],
    changed_card: Callable[[str, Manifest], str],
    files: Mapping[str, bytes | None] | None = None,
    complete: Callable[[Path], None] = lambda directory: None,
) -> Manifest:
    """Put a bundle with another manifest, model card and further files in the place of one.

    A file that is None is left out. `complete` is called with the directory, and may change the content of the
    manifest.
    """
    from training.bundling.bundle import place  # with the compilers of ONNX, which take a second to import

    with tempfile.TemporaryDirectory(dir=bundle.parent, prefix=".calibrate-") as temporary:
        directory = Path(temporary) / bundle.parent.name / bundle.name
        shutil.copytree(bundle, directory, ignore=shutil.ignore_patterns(SCORES, DIAGRAM))
        for name, data in (files or {}).items():
            if data is None:
                (directory / name).unlink()
            else:
                (directory / name).write_bytes(data)
        _save(directory, content)
        complete(directory)
        card, changed = directory / "MODEL_CARD.md", _save(directory, content)
        if card.is_file():
            card.write_text(changed_card(card.read_text(encoding="utf-8"), changed), encoding="utf-8")
        changed = _save(directory, content)
        place(directory, bundle)
    return changed


def _of_recipe(model: Any, data_dir: Path) -> tuple[ValidationExamples, Any, ScopeScores | None]:
    """Return the validation examples of the recipe, the log-probabilities of those of no class, and the scores of both
    before the softmax."""
    if not model.manifest.provenance.recipe:
        raise ValueError("the bundle was imported: give labelled texts by --texts")
    recipe = parse_recipe(model.manifest.provenance.recipe)
    task: Any = TASKS[recipe.task]
    examples = task.calibration_examples(model, recipe, data_dir)
    if examples is None:
        raise ValueError(f"{recipe.data.dataset('dev')} has no validation examples of the model's classes")
    return examples, task.outside_examples(model, recipe, data_dir), task.scope_scores(model, recipe, data_dir)


def _of_file(model: Any, texts: Path, *, chosen: bool) -> ValidationExamples:
    samples, classes = read_samples(texts), model.config.classes
    if classes.out_of_scope is not None and not chosen:
        raise ValueError(
            "the rule for texts out of scope needs the validation split of the recipe, without --texts, or a "
            "--reject-rate"
        )
    if not samples.labels:
        raise ValueError(f"{texts} must end with .tsv and have a label, a tab and a text on each line")
    return ValidationExamples.labelled(model, samples.texts, samples.labels, several=classes.threshold is not None)


def _measured(bundle: Path, data_dir: Path) -> list[dict[str, object]]:
    """Return the quality of a bundle as its manifest lists it."""
    model = load_bundle(bundle)
    recipe = parse_recipe(model.manifest.provenance.recipe)
    return [
        {"metric": metric, "value": round(value, 4), "dataset": recipe.data.dataset(split), "split": split}
        for split in ("dev", "test")
        for metric, value in TASKS[recipe.task].measure_bundle(model, recipe, split, data_dir).items()
    ]


def _held_out(content: dict[str, Any], found: CalibratedClasses, name: str) -> list[dict[str, object]]:
    """Return the quality so far, without that of an earlier calibration on a file, and the one of this calibration."""
    metrics = found.held_out_metrics()
    kept = [each for each in content["quality"] if (each["split"], each["metric"] in metrics) != ("held out", True)]
    return kept + found.held_out_quality(name)


def _changed_card(text: str, before: Any, after: Any) -> str:
    """Return the model card with the numbers of a changed manifest."""
    rules = [manifest.config.classes.out_of_scope for manifest in (before, after)]
    if None not in rules:
        old, new = (f"{rule.described()}:" for rule in rules)
        text = text.replace(old, new)
    return with_calibration(text, after, calibration_section(after), quality_columns(after))


def _save(directory: Path, content: dict[str, Any]) -> Manifest:
    from training.bundling.bundle import save_manifest

    files = sorted(file for file in directory.iterdir() if file.name != MANIFEST)
    content["files"] = {file.name: sha256_of(file) for file in files}
    return save_manifest(directory, content)
