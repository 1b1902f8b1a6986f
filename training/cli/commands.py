"""The commands of `softserve-train`."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from models.bundle.manifest import MANIFEST
from models.errors import ModelError
from models.store import load_bundle
from training.bundling.verify import ExportError
from training.cli.analyses import analyze
from training.cli.calibrating import calibrate
from training.cli.choice import Choice
from training.cli.importing import import_model
from training.cli.new import check, new, warn_of_data
from training.cli.signing import sign
from training.cli.tables import table
from training.data.corpora import CORPORA, download
from training.data.image_corpora import IMAGE_CORPORA
from training.device import choose_device
from training.output import alive, console, print_lines, progress
from training.recipe import RecipeError
from training.recipe.dotted_path import short_names
from training.recipe.loading import load_recipe, parse_recipe
from training.recipe.overrides import Overrides, check_only
from training.run.directory import RunDirectory
from training.run.new_data import changed_data, data_of
from training.run.resumption import edited_fields
from training.run.session import load_trained, train, use_threads
from training.search.analyses.trials import best_as_yaml, trial_rows
from training.search.tune import Search, clear_search
from training.tasks.registry import TASKS

__all__ = ["ERRORS", "run_command"]

ERRORS = (RecipeError, ModelError, ExportError, FloatingPointError, OSError, ValueError)
"""Errors that are printed as one line."""

app = tyro.extras.SubcommandApp()
app.command(analyze, name="analyze", help="Analyses: kernels, mixtures, confusions of classes, searches, beams.")
app.command(name="import")(import_model)
app.command(table)
app.command(new)
app.command(check)
app.command(calibrate)
app.command(sign)


DATA, RUNS = Path("data"), Path("runs")


@app.command
def run(
    recipe: Annotated[Path, tyro.conf.Positional],
    data_dir: Path = DATA,
    runs: Path = RUNS,
    device: str = "auto",
    stop_after: int | None = None,
    restart: bool = False,
    continue_with_new_data: bool = False,
    baselines: bool = True,
    threads: int | None = None,
    overrides: Overrides = (),
) -> int:
    """Trains the model of a recipe, or resumes where an earlier session stopped.

    SIGINT (Ctrl-C) and SIGTERM save a checkpoint. A run continues with a changed section `export`, more epochs or more
    patience. On several cores or GPUs: torchrun --nproc-per-node N -m training.cli run ..., with the same loss curve.

    Args:
        recipe: YAML file, see training/recipes/.
        data_dir: Directory that holds the corpora (`softserve-train corpora`).
        runs: Parent of the run's directory, where checkpoints and TensorBoard events go.
        device: auto, cpu, or a CUDA device such as cuda:0.
        stop_after: End this session after so many steps; the next one resumes exactly there.
        restart: Start over where the recipe or the data changed since the run began.
        continue_with_new_data: Train on where the data changed, from the weights of the best evaluation, for the
            recipe's epochs. A classifier gets the classes of the new data; vocabularies stay.
        baselines: Whether simple methods are measured on the same data first, which takes seconds.
        threads: Threads that compute on the CPU, by default one for each core.
        overrides: Field of the recipe and its value in YAML, such as loop.epochs=3; can be repeated.
    """
    use_threads(threads)
    choice = Choice(data_dir, None if restart else runs)
    settings = load_recipe(recipe, overrides, choice).model_copy(update={"tune": None})  # `tune` is no part of a run
    for line in choice.lines(settings):
        console.print(line)
    directory, command = RunDirectory(runs / settings.name), (recipe, overrides)
    where = choose_device(device)
    warn_of_data(settings, data_dir)
    train(
        settings,
        directory,
        data_dir,
        where,
        command=command,
        restart=restart,
        new_data=continue_with_new_data,
        baselines=baselines,
        stop_after=stop_after,
    )
    return 0


def _note_edited(run: RunDirectory, overrides: Sequence[str] = ()) -> None:
    if (line := edited_fields(run, overrides)) is not None:
        console.print(line)


@app.command
def evaluate(
    what: Annotated[Path, tyro.conf.Positional],
    data_dir: Path = DATA,
    split: str = "test",
    device: str = "auto",
    graphs: Literal["cpu", "cuda"] = "cpu",
    threads: int | None = None,
    overrides: Overrides = (),
) -> int:
    """Measures a run's best checkpoint, or a bundle by the code that serves it: perplexity, BLEU, ROUGE or accuracy.

    With `sparse_k`, the metrics are coverage, the share of tokens whose probability is not 0, and the
    perplexity of those. A run has that of the plain softmax of the same scores too, to compare with other runs.
    A run of a language model with several kernels has the mean variance of their weights (kernel paper, Table 2).

    Args:
        what: A run directory or a bundle directory.
        data_dir: Directory that holds the corpora.
        split: train, dev or test.
        device: For a run: auto, cpu, or a CUDA device such as cuda:0. Bundles are measured on the CPU.
        graphs: With cuda, measure the graphs of a bundle that are for GPUs, on the CPU.
        threads: Threads that compute on the CPU, by default one for each core.
        overrides: For a run of a language model: output_layer.kernels, with a cache of constant weight added to the
            kernels of the run.
    """
    use_threads(threads)
    check_only(overrides, "output_layer.kernels")
    progress.print(f"loading {what}, measuring on {split}")
    if (what / MANIFEST).is_file():
        if device not in ("auto", "cpu"):
            raise ValueError("--device: bundles are measured on the CPU")
        if overrides:
            raise ValueError("--set: a bundle has the output layer that it was exported with")
        model = load_bundle(what.resolve(), graphs=graphs, threads=threads)
        if not model.manifest.provenance.recipe:
            raise ValueError(f"{what} was imported: no recipe says what to measure it on")
        recipe = parse_recipe(model.manifest.provenance.recipe)
        noted, now = model.manifest.provenance.splits.get(split), data_of(recipe, data_dir, [split]).get(split)
        if noted is not None and now is not None and noted.sha256 != now.sha256:
            counts = f"{noted.records} records then, {now.records} now"
            console.print(f"{split} ({noted.dataset}) has changed since the bundle was exported: {counts}")
        lines = TASKS[recipe.task].report_bundle(model, recipe, split, data_dir)
    else:
        if graphs != "cpu":
            raise ValueError("--graphs: only bundles have graphs for GPUs, and this is a run")
        run = RunDirectory(what)
        task = load_trained(run, data_dir, device, overrides)
        _note_edited(run)
        if (line := changed_data(run, task.recipe, data_of(task.recipe, data_dir))) is not None:
            console.print(line)
        recipe, lines = task.recipe, task.report(split)
    for line in lines:
        console.print(f"{recipe.name} on {recipe.data.dataset(split)}, {split}: {line}")
    return 0


@app.command
def export(
    run_directory: Annotated[Path, tyro.conf.Positional],
    output: Path,
    data_dir: Path = DATA,
    reference: tuple[str, ...] = (),
    force: bool = False,
    threads: int | None = None,
    overrides: Overrides = (),
) -> int:
    """Writes a run's best checkpoint as a bundle: verified graphs, tokenizer, manifest, model card.

    Args:
        run_directory: A run directory that `run` wrote.
        output: Model directory; the bundle goes to <output>/<name>/<version>/.
        data_dir: Directory that holds the corpora, to measure quality on.
        reference: Other models' values of the first metric for the model card, such as "Kneser-Ney 5-gram=45.2".
        force: Replace a bundle of the same version.
        threads: Threads that compute on the CPU, by default one for each core.
        overrides: Field of the recipe's section export and its value, such as export.version=2; can be repeated. Of a
            language model also output_layer.kernels, with a cache of constant weight added to the kernels of the run.
    """
    from training.run.export import export_run  # with the compilers of ONNX, which take a second to import

    use_threads(threads)
    references = dict(map(_reference, reference))
    run = RunDirectory(run_directory)
    _note_edited(run, overrides)
    exported = export_run(
        run, output, data_dir, references=references, force=force, overrides=overrides, report=console.print
    )
    for backend, difference in exported.differences.items():
        console.print(f"{backend}: largest difference from eager {difference:.1e}")
    for quality in exported.manifest.quality:
        console.print(f"{quality.metric} on {quality.dataset}, {quality.split}: {quality.value:.3f}")
    console.print(f"wrote {exported.path}")
    if exported.cost is not None:
        console.print(exported.cost.advice())
    return 0


@app.command
def device_graphs(bundle: Annotated[Path, tyro.conf.Positional], float16: bool = False) -> int:
    """Adds the graphs for GPUs to a bundle that has none, or replaces them; weights and other graphs stay as they are.

    Args:
        bundle: A bundle directory.
        float16: Multiply matrices in float16; measure the result with `evaluate --graphs cuda`.
    """
    from training.bundling.bundle import add_device_graphs

    files = add_device_graphs(bundle, float16=float16)
    console.print(f"wrote {', '.join(files)}" if files else "GPUs run the graphs as they are")
    return 0


@app.command
def corpora(fetch: str | None = None, data_dir: Path = DATA) -> int:
    """Lists the corpora that recipes can name, tab-separated where the output is no terminal, or downloads one.

    Args:
        fetch: Name of a corpus to download into the data directory.
        data_dir: Directory that holds the corpora.
    """
    if fetch is not None:
        console.print(f"wrote {download(fetch, data_dir)}")
        return 0
    header = ("corpus", "columns", "licence", "models may be released", "--fetch", "homepage")
    rows = [
        (
            each.name,
            ", ".join(each.columns),
            each.licence,
            _yes(each.release_allowed),
            _yes(bool(each.sources)),
            each.homepage,
        )
        for each in (*CORPORA.values(), *IMAGE_CORPORA.values())
    ]
    if not console.is_terminal:
        print_lines(header, rows)
        return 0
    for name, columns, licence, released, fetched, homepage in rows:  # in lines of their own, for narrow terminals
        console.print(name, style="bold")
        release = "models may be released" if released == "yes" else "models may not be released"
        how = f"--fetch {name}, from" if fetched == "yes" else "see"
        console.print(f"    columns {columns}; {licence}, {release}\n    {how} {homepage}")
    return 0


def _yes(value: bool) -> str:
    return "yes" if value else "no"


@app.command
def tune(
    recipe: Annotated[Path, tyro.conf.Positional],
    data_dir: Path = DATA,
    runs: Path = RUNS,
    device: str = "auto",
    restart: bool = False,
    threads: int | None = None,
    overrides: Overrides = (),
) -> int:
    """Searches hyperparameters on the development set, as the recipe's section `tune` says, or goes on with a search.

    The same command in several processes shares the trials of one search among them.

    Args:
        recipe: YAML file with a section `tune`, see training/recipes/tune-log.yaml.
        data_dir: Directory that holds the corpora (`softserve-train corpora`).
        runs: Parent of the search's directory <name>-tune, where its study, trials, table and plot go.
        device: auto, cpu, or a CUDA device such as cuda:0.
        restart: Delete the results of an earlier search.
        threads: Threads that compute on the CPU, by default one for each core.
        overrides: Field of the recipe and its value in YAML, such as loop.epochs=3; can be repeated.
    """
    from training.search.analyses import plots

    use_threads(threads)
    settings = load_recipe(recipe, overrides, Choice(data_dir))
    directory = runs / f"{settings.name}-tune"
    if restart:
        clear_search(directory)
    search = Search(settings, directory, data_dir, choose_device(device))
    search.run(console.print)
    results, paths, metric = search.results(), list(search.settings.parameters), search.metric
    if running := search.num_running():
        console.print(f"other processes still train {running} trials")
    if not results:
        return 0
    rows = trial_rows(results, paths, metric)
    rows.show(f"{settings.name}: {len(results)} trials", short_names(paths))
    table = rows.write_csv(directory / "trials.csv")
    picture = plots.plot_trials(results, paths, metric, directory / "trials.png", maximize=search.maximize)
    if results[0].failed or results[0].pruned:
        console.print("no trial came to its end")
        return 1
    console.print(f"best dev {metric} {results[0].metric:.3f} in {directory / f'trial-{results[0].number}'}, with\n")
    console.print(best_as_yaml(settings, results[0]))
    console.print(f"wrote {table} and {picture}")
    return 0


def _reference(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    with contextlib.suppress(ValueError):
        if name:
            return name, float(value)
    raise ValueError(f'--reference takes "name=value", not {text!r}')


def run_command(description: str) -> int:
    """Run the command that the arguments name; return the exit status."""
    if os.environ.get("RANK", "0") != "0":  # of several processes the first one says that they go on
        return int(app.cli(prog="softserve-train", description=description))
    with alive():
        return int(app.cli(prog="softserve-train", description=description))
