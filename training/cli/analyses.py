"""`softserve-train analyze`: what kernels do, which words or classes models tell apart, what trials found."""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from models.store import load_bundle
from training.cli.choice import Choice
from training.device import choose_device
from training.output import console
from training.recipe.loading import load_recipe
from training.recipe.overrides import Overrides
from training.run.directory import RunDirectory
from training.run.session import load_offering, load_trained
from training.search import comparison
from training.search.analyses import beams as searches
from training.search.analyses import confusions as classes
from training.search.analyses import disambiguation as words
from training.search.analyses import gradients as kernels
from training.search.analyses import grid as trials
from training.search.analyses import mixture as components
from training.search.analyses.minimal_pairs import held_out_pairs
from training.search.analyses.tables import Rows
from training.search.tune import Search

__all__ = ["analyze"]

analyze = tyro.extras.SubcommandApp()


@analyze.command
def gradients(
    output: Path,
    hidden_size: int = 16,
    norm: float = 2.5,
    largest: float = 5.0,
    against: kernels.Against = "distance",
) -> int:
    """Plots score and gradient of all nine kernels against distance (kernel paper, Figure 1).

    Args:
        output: Directory for gradients.png, gradients.svg and gradients.csv.
        hidden_size: Size of the vectors, on which default hyperparameters depend.
        norm: Norm of the word vector; the default is about what training arrives at.
        largest: Largest distance.
        against: The horizontal axis; the paper's is the squared distance.
    """
    from training.search.analyses import plots

    found = kernels.curves(hidden_size=hidden_size, norm=norm, largest=largest)
    note = f"default hyperparameters for hidden size {hidden_size}, ||W|| = {norm:g}"
    images = plots.plot_gradients(found, output, note, against)
    console.print(f"wrote {', '.join(map(str, images))}")
    _write(output, {"gradients.csv": kernels.curve_rows(found)})
    return 0


@analyze.command
def disambiguation(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    pairs: Path | None = None,
    mine: int | None = None,
    split: str = "test",
    data_dir: Path = Path("data"),
    neighbours: int = 5,
    top: int = 20,
    output: Path | None = None,
    device: str = "auto",
) -> int:
    """Compares how sure models are of a word that is easily confused (kernel paper, section 4.5).

    Args:
        runs: Run directories; the word neighbours are those of the first, which the others are compared with.
        pairs: File with one pair a line: right sentence, tab, the same with another word in one place; by default
            16 everyday sentences.
        mine: Number of pairs to take from the first run's corpus instead: sentences with one word replaced by its
            mutual nearest neighbour in that run's projection matrix, which are hard for that run above all.
        split: Split to mine.
        data_dir: Directory that holds the corpora, to mine pairs.
        neighbours: Number of nearest words of each word.
        top: Number of pairs to show; the files have all.
        output: Directory for odds.csv, right.csv and neighbours.csv, analysis/ in the first run by default.
        device: auto, cpu, or a CUDA device such as cuda:0.
    """
    if not runs:
        raise ValueError("runs: at least one run directory is needed")
    _at_least_1(top=top, mine=mine)
    if mine is not None and pairs is not None:
        raise ValueError("pairs and mine: pairs are read from a file or taken from the corpus, not both")
    alike = len({run.resolve().name for run in runs}) < len(runs)
    names = [str(run) if alike else run.resolve().name for run in runs]
    loaded = [load_offering(RunDirectory(run), "next-word", device=device) for run in runs]
    tasks, first = dict(zip(names, loaded, strict=True)), loaded[0]
    file = pairs or words.PAIRS
    sentences = words.read_pairs(file) if mine is None else held_out_pairs(first, split, data_dir, mine)
    comparisons = words.compare(tasks, sentences)
    near = words.neighbour_rows(first, [each.pair for each in comparisons], neighbours)
    shown = Rows(near.columns, near.rows[: 2 * top])
    shown.show(f"nearest words in the projection matrix of {names[0]}")
    title = "probabilities of the right and the wrong word (log-odds), most different runs first"
    words.comparison_rows(comparisons[:top]).show(title)
    right = words.right_rows(comparisons)
    right.show(f"pairs whose right word is the more probable one, and McNemar's exact test against {names[0]}")
    tables = {"neighbours.csv": near, "odds.csv": words.odds_rows(comparisons), "right.csv": right}
    _write(output or runs[0] / "analysis", tables)
    return 0


@analyze.command
def mixture(
    run: Annotated[Path, tyro.conf.Positional],
    split: str = "dev",
    data_dir: Path = Path("data"),
    min_count: int = 20,
    top: int = 12,
    output: Path | None = None,
    device: str = "auto",
) -> int:
    """Shows which component of a mixture carries which weight, for which words, and how unequal the weights are.

    Args:
        run: Run directory of a model with several kernels.
        split: train, dev or test.
        data_dir: Directory that holds the corpora.
        min_count: Leave out words that the split has less often.
        top: How many words to show for each component.
        output: Directory for components.csv and words.csv, analysis/ in the run by default.
        device: auto, cpu, or a CUDA device such as cuda:0.
    """
    _at_least_1(min_count=min_count, top=top)
    task = load_offering(RunDirectory(run), "next-word", data_dir, device)
    shares = components.mixture_shares(task, task.batches(split))
    rows = components.component_rows(shares, task, min_count=min_count, words=top)
    title = f"{task.recipe.name} on {split}, {int(shares.counts.sum())} words: mean weights of the components"
    rows.show(title)
    console.print(f"mean variance of the mixture weights over the components: {shares.mean_variance():.4g}")
    _write(
        output or run / "analysis",
        {"components.csv": rows, "words.csv": components.word_rows(shares, task, min_count=min_count)},
    )
    return 0


@analyze.command
def confusions(
    run: Annotated[Path, tyro.conf.Positional],
    split: str = "dev",
    data_dir: Path = Path("data"),
    count: int = 20,
    output: Path | None = None,
    device: str = "auto",
) -> int:
    """Shows which classes a classifier confuses, those with the lowest F1, and those that want more training examples.

    Args:
        run: Run directory of a classifier.
        split: train, dev or test.
        data_dir: Directory that holds the corpora.
        count: Rows of each table.
        output: Directory for confusions.csv, classes.csv and wanting.csv, analysis/ in the run by default.
        device: auto, cpu, or a CUDA device such as cuda:0.
    """
    _at_least_1(count=count)
    task = load_offering(RunDirectory(run), "classify", data_dir, device)
    ranked, found = task.predicted(split)
    labels = [[label for label in own if label < len(task.labels)] for own in found]  # those of a training text
    tables = {
        "confusions.csv": classes.confusion_rows(ranked, labels, task.labels, count),
        "classes.csv": classes.class_rows(ranked, labels, task.labels, count),
        "wanting.csv": classes.wanting_rows(
            ranked, labels, task.labels, Counter(itertools.chain(*task.classes_of("train"))), count
        ),
    }
    where = f"{task.recipe.name} on {split}, {len(labels)} examples"
    tables["confusions.csv"].show(f"{where}: classes taken for others")
    tables["classes.csv"].show(f"{where}: classes known worst")
    if tables["wanting.csv"].rows:
        tables["wanting.csv"].show(f"{where}: classes that more training examples are most likely to help")
    _write(output or run / "analysis", tables)
    return 0


@analyze.command
def compare(
    first: Annotated[Path, tyro.conf.Positional],
    second: Annotated[Path, tyro.conf.Positional],
    split: str = "test",
    data_dir: Path = Path("data"),
    count: int = 20,
    output: Path | None = None,
    device: str = "auto",
) -> int:
    """Compares two runs or bundles on one test set: their metric with a 95 % interval of the difference, each class.

    The interval is that of a paired bootstrap over examples; where it contains 0, the test set does not tell which
    model is better. Both must be measured on the same records.

    Args:
        first: Run or bundle directory, such as the former version.
        second: Run or bundle directory whose lead is computed.
        split: train, dev or test.
        data_dir: Directory that holds the corpora.
        count: Classes that are shown, those with the largest change.
        output: CSV file of all classes.
        device: auto, cpu, or a CUDA device such as cuda:0, for runs; bundles are measured on the CPU.
    """
    _at_least_1(count=count)
    one, other = (comparison.measured(each, split, data_dir, device) for each in (first, second))
    console.print(comparison.difference(one, other))
    if (rows := comparison.class_rows(one, other)) is not None:
        shown = replace(rows, rows=rows.rows[:count])
        shown.show(f"{one.metric} by class on {split}, largest changes first")
        if output is not None:
            console.print(f"wrote {rows.write_csv(output)}")
    return 0


@analyze.command
def grid(
    recipe: Annotated[Path, tyro.conf.Positional],
    split: str = "test",
    data_dir: Path = Path("data"),
    runs: Path = Path("runs"),
    against: str | None = None,
    device: str = "auto",
    overrides: Overrides = (),
) -> int:
    """Compares the models of a search (`softserve-train tune`) on a split: mean and spread over seeds, plots.

    Args:
        recipe: The YAML file that was searched with.
        split: dev or test. Choose by dev alone.
        data_dir: Directory that holds the corpora.
        runs: Parent of the search's directory <name>-tune, where grid.csv and the plots go.
        against: Field on the horizontal axis of the plot of metrics, such as output_layer.sparse_k.
        device: auto, cpu, or a CUDA device such as cuda:0.
        overrides: Field of the recipe and its value in YAML, as the search was started with; can be repeated.
    """
    from training.search.analyses import plots

    settings = load_recipe(recipe, overrides, Choice(data_dir))
    directory = runs / f"{settings.name}-tune"
    if not Search.exists(directory):
        raise FileNotFoundError(f"{directory} holds no search; `softserve-train tune {recipe}` makes one")
    search = Search(settings, directory, data_dir, choose_device(device))
    if against is not None and against not in search.settings.parameters:
        raise ValueError(f"against: the search has {', '.join(search.settings.parameters)}, not {against!r}")
    paths = search.settings.parameters
    whole = [
        replace(result, values={path: result.values[path] for path in paths})
        for result in search.results()
        if not result.pruned and not result.failed and result.values.keys() >= paths.keys()
    ]
    if not whole:
        raise ValueError(f"{search.directory} holds no trial that came to its end")
    measured = []
    for result in whole:
        run = search.directory / f"trial-{result.number}"
        metrics = load_trained(RunDirectory(run), data_dir, device).measure(split).metrics
        losses = trials.losses_of(run / "history.json")
        measured.append(trials.Measured(result=result, metrics=metrics, losses=losses))
    rows = trials.grid_rows(measured)
    trials.shown_rows(measured).show(f"{settings.name} on {split}: {len(measured)} trials")
    _write(search.directory, {"grid.csv": rows})
    pictures = [plots.plot_curves(measured, search.directory / "curves.png")]
    if against is not None:
        pictures.append(plots.plot_metric(measured, against, search.directory / "metrics.png"))
    console.print(f"wrote {', '.join(map(str, pictures))}")
    return 0


@analyze.command
def beams(
    bundles: Annotated[tuple[Path, ...], tyro.conf.Positional],
    split: str = "test",
    data_dir: Path = Path("data"),
    limit: int | None = None,
    output: Path | None = None,
) -> int:
    """Compares what text generators write with beams of 1 and 5, with and without the sparse mask (Table 5).

    Args:
        bundles: Bundle directories of text generators.
        split: dev or test of each model's own data.
        data_dir: Directory that holds the corpora.
        limit: Only the first texts of the split.
        output: Directory for beams.csv.
    """
    _at_least_1(limit=limit)
    if not bundles:
        raise ValueError("bundles: at least one bundle directory is needed")
    models: dict[str, Any] = {}
    for bundle in bundles:
        model = load_bundle(bundle.resolve())
        if "generate" not in model.offers:
            raise ValueError(f"{bundle} is a bundle of task {model.manifest.task!r}, which does not offer 'generate'")
        models[str(bundle)] = model
    rows = searches.beam_rows(models, split, data_dir, limit)
    rows.show(f"outputs for {split}")
    if output is not None:
        _write(output, {"beams.csv": rows})
    return 0


def _write(directory: Path, tables: Mapping[str, Rows]) -> None:
    paths = [rows.write_csv(directory / name) for name, rows in tables.items()]
    console.print(f"wrote {', '.join(map(str, paths))}")


def _at_least_1(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
