"""`softserve-train new` and `softserve-train check`: recipes for a user's data, and reports on them."""

import csv
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from training.cli.choice import Choice
from training.data.inspection import inspect_file, likely_suffix
from training.data.report import DataReport
from training.data.report_page import report_page
from training.device import choose_device
from training.output import console
from training.recipe import Recipe
from training.recipe.loading import load_recipe, parse_recipe
from training.recipe.overrides import Overrides
from training.recipe.own.document import Planned, Wishes
from training.run.session import use_threads
from training.search.time_trial import TimeTrial, time_trial
from training.tasks.data_report import examine, has_report
from training.tasks.registry import TASKS
from training.tasks.task import Task
from training.tasks.wrong_labels import likely_wrong

__all__ = ["check", "new", "warn_of_data"]

_KINDS = {(task.kind, task.network): task for task in map(TASKS.__getitem__, TASKS.names()) if task.kind is not None}
"""The tasks that recipes are made of, by what their models are called, and the network where there are several."""
_DEFAULT_NETWORKS = {kind: network for (kind, network), task in _KINDS.items() if task.default_network}
"""The network of kinds of models that have several, where none is named."""
_LOOKED_AT_BY_RUN = 50_000
"""Texts of a split that are looked at before a training begins."""
_MARGIN = 0.95
"""Fraction of `--minutes` that is planned, since the model is measured and saved after it."""
_MORE_EPOCHS = 1.25
"""Epochs that are planned for `--minutes`, relative to what the trial says: the machine may be faster than in it."""


def new(
    kind: Annotated[str, tyro.conf.Positional],
    files: Annotated[tuple[str, ...], tyro.conf.Positional],
    output: Path | None = None,
    name: str | None = None,
    data_dir: Path = Path("data"),
    columns: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    languages: str | None = None,
    network: str | None = None,
    minutes: float | None = None,
    from_scratch: bool = False,
    trial: bool = True,
    device: str = "auto",
    threads: int | None = None,
    force: bool = False,
) -> int:
    """Looks at your data and writes a commented recipe that fits them, which `softserve-train run` takes as it is.

    Read are CSV, tab-separated files with or without a header, JSON Lines, Parquet, plain text, a folder of texts or
    images for each class, TMX, XLIFF, directories of the library datasets, and for translators two parallel files.

    Args:
        kind: What to train: classifier, token-classifier, image-classifier, translator, language-model or
            text-generator.
        files: The file or folder, or two parallel files, the source first; - saves standard input in --data-dir.
        output: Recipe to write, by default <name>.yaml in this directory.
        name: Name of the run and of the bundle, by default that of the file.
        data_dir: Directory that the recipe's paths start at, for files within it; others get absolute paths.
        columns: Role of a column and its name in the file, such as label=kind; can be repeated.
        languages: Source and target language of a translator, such as de-en; they are detected without.
        network: Network of a language model: lstm, of words, or transformer, of subword tokens.
        minutes: Train for this time at most: a slower machine makes fewer updates, over which the learning rate falls
            as far. The number of epochs is chosen for it, up to three times as many as the data ask for.
        from_scratch: Start without a pretrained encoder or a bundled model.
        trial: Whether a few steps are timed to predict the time of the training.
        device: auto, cpu, or a CUDA device such as cuda:0, for the trial.
        threads: Threads that the trial computes with on the CPU, by default one for each core.
        force: Replace the recipe if it is there.
    """
    if minutes is not None and not trial:
        raise ValueError("--minutes: the time is planned by the trial, so that --no-trial cannot be given with it")
    if minutes is not None and minutes <= 0:
        raise ValueError(f"--minutes must be positive, not {minutes:g}")
    if "-" in files:
        files = (str(_saved_input(data_dir, name or "input", force=force)),)
    own_name = name or _name_of(files)
    path = output or Path(f"{own_name}.yaml")
    if path.exists() and not force:
        raise ValueError(f"{path} is there; --force replaces it, --output or --name writes another")
    use_threads(threads)
    console.print(f"reading {', '.join(files)}")
    wishes = Wishes(
        columns=dict(map(_role, columns)),
        languages=_language_pair(languages) if languages is not None else None,
        from_scratch=from_scratch,
        data_dir=data_dir,
    )
    plan_for = _planner(_task_of(kind, network), files, wishes)
    plan = _placed(plan_for(None, None), own_name, data_dir)
    recipe = parse_recipe(plan.content)
    _say("found", plan.found)
    _say("data report", examine(recipe, data_dir).lines())
    timed: TimeTrial | None = None
    if trial:
        console.print("\ntiming a few steps of the training, which takes some seconds ...")
        timed = time_trial(recipe, data_dir, choose_device(device))
        epochs = None if minutes is None else _epochs(timed, 60 * minutes * _MARGIN, recipe)
        plan = _placed(plan_for(epochs, timed.epoch_steps), own_name, data_dir)
        if minutes is not None:
            limit = max(minutes * _MARGIN - timed.start / 60, minutes / 10)
            plan.choose("loop.minutes", round(limit, 2), f"{minutes:g} without the time before the first epoch")
        recipe = parse_recipe(plan.content)
    _say("chosen", (f"{field} = {_value(plan, field)}: {reason}" for field, reason in plan.reasons.items()))
    command = f"softserve-train run {path}" + (f" --data-dir {data_dir}" if data_dir != Path("data") else "")
    for title, line in () if timed is None else (("expect", _expectation(timed)), ("time", _time_line(timed, recipe))):
        console.print(f"\n{title}: {line}")
        plan.found.append(f"{title.capitalize()}: {line}.")
    option = f" --network {network}" if network is not None else ""
    head = f"Written by `softserve-train new {kind} {' '.join(files)}{option}`; train it by `{command}`."
    path.write_text(plan.document(head), encoding="utf-8")
    console.print(f"\nwrote {path}; train it by\n    {command}")
    return 0


def check(
    recipe: Annotated[Path, tyro.conf.Positional],
    data_dir: Path = Path("data"),
    json: Path | None = None,
    html: Path | None = None,
    strict: bool = False,
    wrong_labels: Path | None = None,
    overrides: Overrides = (),
) -> int:
    """Reports what in the data of a recipe is likely to be a mistake.

    Copies and near copies with different labels or in other splits, classes of one text, pairs whose sides do not
    belong together, damaged encodings, texts in other languages, what looks like secrets. The exit status is 1 where
    there are warnings with --strict or `data.strict: true`, else 0.

    Args:
        recipe: YAML file, such as `softserve-train new` writes.
        data_dir: Directory that holds the data.
        json: File to write the report to as JSON.
        html: File to write the report to as one page.
        strict: Treat warnings as errors.
        wrong_labels: File to write the training texts to whose label is likely wrong, tab-separated with the label that
            they more likely have: each is classified by a simple model of the other texts.
        overrides: Field of the recipe and its value in YAML, such as data.files.train=more.csv; can be repeated.
    """
    settings = load_recipe(recipe, overrides, Choice(data_dir))
    report = examine(settings, data_dir)
    for line in report.lines():
        console.print(line)
    for path, content in ((json, report.json), (html, lambda: report_page(report))):
        if path is not None:
            path.write_text(content(), encoding="utf-8")
            console.print(f"wrote {path}")
    if wrong_labels is not None:
        _write_wrong_labels(settings, data_dir, wrong_labels)
    return 1 if report.warnings and (strict or _is_strict(settings)) else 0


def _write_wrong_labels(recipe: Recipe, data_dir: Path, path: Path) -> None:
    """Write label, likely label, its probability and the text of each training text that is likely mislabelled."""
    texts = TASKS[recipe.task].texts(recipe, "train", data_dir, sys.maxsize) if has_report(recipe) else None
    if texts is None or texts.labels is None or any(len(labels) != 1 for labels in texts.labels):
        raise ValueError("--wrong-labels: the data have not one class for each text")
    labels = [label for (label,) in texts.labels]
    found = likely_wrong(texts.columns["text"], labels)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["label", "likely", "probability", "text"])
        for each in found:
            text = texts.columns["text"][each.place]
            writer.writerow([labels[each.place], each.suggested, f"{each.probability:.3f}", text])
    console.print(f"{len(found)} of {len(labels)} training texts have a label that is likely wrong; wrote {path}")


def warn_of_data(recipe: Recipe, data_dir: Path) -> None:
    """Print the warnings of the data report on a user's own files, the quick one.

    Raises `ValueError` where there are some and the recipe has `data.strict: true`.
    """
    if not has_report(recipe) or getattr(recipe.data, "files", None) is None:
        if _is_strict(recipe):
            raise ValueError(f"data.strict: there is no data report on task {recipe.task} with these data")
        return
    if os.environ.get("RANK", "0") != "0":  # of several processes the first one reports
        return
    report: DataReport = examine(recipe, data_dir, quick=True, most=_LOOKED_AT_BY_RUN)
    for line in report.brief():
        console.print(line)
    if report.warnings:
        if _is_strict(recipe):
            raise ValueError(
                f"data.strict: the data have {len(report.warnings)} warnings; `softserve-train check` lists all"
            )
        console.print("`softserve-train check` shows examples")


def _is_strict(recipe: Recipe) -> bool:
    return bool(getattr(recipe.data, "strict", False))


def _task_of(kind: str, network: str | None) -> type[Task[Any]]:
    """Return the task that trains models of a kind; raises `ValueError` for a kind or a network that there is not."""
    networks = [own for name, own in _KINDS if name == kind]
    if not networks:
        known = ", ".join(sorted({name for name, _ in _KINDS}))
        raise ValueError(f"there are recipes for {known}, not for {kind!r}")
    chosen = network or _DEFAULT_NETWORKS.get(kind)
    if chosen not in networks:
        others = ", ".join(sorted(name for name in networks if name is not None))
        raise ValueError(f"--network: {f'{others} are possible' if others else f'{kind} has one network only'}")
    return _KINDS[kind, chosen]


def _planner(
    task: type[Task[Any]], files: Sequence[str], wishes: Wishes
) -> Callable[[int | None, int | None], Planned]:
    """Return the function that plans a recipe for a number of epochs and of updates an epoch, where they are known."""
    if not files:
        raise ValueError("name the file or folder of your data")
    found = [inspect_file(Path(file)) for file in files]
    about = [line for each in found for line in each.lines()]

    def plan(epochs: int | None, epoch_steps: int | None) -> Planned:
        planned = task.plan(found, replace(wishes, epochs=epochs, epoch_steps=epoch_steps))
        planned.found = about + planned.found
        return planned

    return plan


def _placed(plan: Planned, name: str, data_dir: Path) -> Planned:
    """Set name and paths: paths within the data directory are relative to it, others absolute."""

    def placed(path: str) -> str:
        whole = Path(path).resolve()
        return str(whole.relative_to(data_dir.resolve()) if whole.is_relative_to(data_dir.resolve()) else whole)

    plan.choose("name", name)
    train = plan.content["data"]["files"]["train"]
    files = {side: placed(path) for side, path in train.items()} if isinstance(train, dict) else placed(train)
    plan.choose("data.files.train", files, plan.reasons.get("data.files.train", ""))
    return plan


def _name_of(files: Sequence[str]) -> str:
    stem = Path(files[0]).resolve().name.partition(".")[0] if files else ""
    return re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")[:64] or "model"


def _saved_input(data_dir: Path, name: str, *, force: bool) -> Path:
    """Write standard input to a file of the data directory whose ending says its format; return its path."""
    content = sys.stdin.buffer.read()
    path = data_dir / f"{name}{likely_suffix(content)}"
    if path.exists() and not force:
        raise ValueError(f"{path} is there; --force replaces it, --name names another")
    data_dir.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    console.print(f"standard input is in {path} now")
    return path


def _role(text: str) -> tuple[str, str]:
    role, equals, name = text.partition("=")
    if not (role and equals and name):
        raise ValueError(f"--columns takes ROLE=NAME, such as label=kind, not {text!r}")
    return role, name


def _language_pair(text: str) -> tuple[str, str]:
    source, _, target = text.partition("-")
    if not re.fullmatch("[a-z]{2,3}", source) or not re.fullmatch("[a-z]{2,3}", target):
        raise ValueError(f"--languages takes two codes, such as de-en, not {text!r}")
    return source, target


def _epochs(timed: TimeTrial, seconds: float, recipe: Recipe) -> int:
    """Return the epochs for a time: as many as fit, but at most three times those that the data ask for."""
    return min(3 * recipe.loop.epochs, round(_MORE_EPOCHS * timed.epochs_within(seconds)))


def _expectation(timed: TimeTrial) -> str:
    """Return a line with the metrics of simple methods."""
    if not timed.baselines:
        return "simple methods are not measured for this task"
    values = ", ".join(f"{name} {value:.3f}" for name, value in timed.baselines.items())
    return (
        f"simple methods have a dev {timed.metric} of: {values}; `run` shows the best of them next to each evaluation"
    )


def _time_line(timed: TimeTrial, recipe: Recipe) -> str:
    epochs, minutes = recipe.loop.epochs, recipe.loop.minutes
    seconds, limit = timed.seconds(epochs), math.inf if minutes is None else timed.start + 60 * minutes
    return (
        f"some {_duration(min(seconds, limit))} for {epochs} epochs: {_duration(timed.start)} before the first, "
        f"{_duration(timed.epoch)} each, with {timed.epoch_steps:,} updates of {1000 * timed.step:.0f} ms "
        f"and an evaluation of {timed.evaluation:.1f} s; less where it stops early"
        + ("" if minutes is None else f", and at most {minutes:g} minutes from the first epoch on")
    )


def _duration(seconds: float) -> str:
    return (
        f"{seconds / 60:.1f} minutes"
        if seconds >= 90
        else f"{seconds:.1f} seconds"
        if seconds < 10
        else f"{seconds:.0f} seconds"
    )


def _value(plan: Planned, field: str) -> object:
    value: object = plan.content
    for key in field.split("."):
        assert isinstance(value, dict)
        value = value[key]
    return value


def _say(title: str, lines: object) -> None:
    console.print(f"\n{title}")
    for line in lines:  # type: ignore[attr-defined]
        console.print(f"  {line}")
