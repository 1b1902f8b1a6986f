"""MODEL_CARD.md of a bundle, written from its manifest and sentences of its task or architecture."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import yaml

from models.bundle.manifest import (
    ContextComponent,
    DataSource,
    Manifest,
    Quantization,
    SoftmaxLayer,
    SplitData,
    Training,
)

__all__ = [
    "CALIBRATION",
    "Card",
    "imported_card",
    "model_card",
    "training_sentence",
    "with_calibration",
    "with_device_line",
    "with_quality",
]

CALIBRATION = "Calibration"
"""The heading about calibrated probabilities."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """The sentences of a model card that depend on the task, or on the architecture of an imported model."""

    network: str
    """The network and its sizes."""
    outputs: str
    """Vocabulary, classes or languages."""
    limits: str
    """Paragraph about accepted inputs and known weaknesses."""
    unit: str = "classes"
    """The plural noun for the outputs of the softmax: `words` or `classes`."""
    quality: str = ""
    """Paragraph about how the metrics are computed."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Heading of each metric in the table of quality; all metrics of the manifest by name if empty."""
    references: Mapping[str, float | None] = field(default_factory=dict)
    """The values of reference models for each metric, None for the value that is given; the first metric if empty."""
    digits: int = 2
    """Decimals of metrics."""
    calibration: str = ""
    """Paragraph and table about calibrated probabilities; none where it is empty."""


def model_card(
    manifest: Manifest,
    card: Card,
    recipe: Mapping[str, object],
    *,
    differences: Mapping[str, float],
    references: Mapping[str, float],
) -> str:
    """Return the card of a trained model, Markdown.

    `recipe` has the fields that are not their defaults; `references` are other models' values of the first metric on
    the test split.
    """
    provenance = manifest.provenance
    largest = ", ".join(f"{name} {difference:.1e}" for name, difference in differences.items())
    sections = {
        "Data": "\n".join(_source(source) for source in provenance.data) + _splits(provenance.splits),
        "Quality": f"{card.quality}\n\n{_table(manifest, card, references)}\n\n"
        f"Exported graphs against the trained module, largest difference of any output, float32: {largest}.",
        **_calibration(card),
        "Limits": card.limits,
        "Recipe": f"Exported on {provenance.date} after {provenance.training_seconds:.0f} s of training; code "
        f"{provenance.git_revision}.{_trained(provenance.training)}\n\n"
        f"```yaml\n{yaml.safe_dump(recipe, sort_keys=False).strip()}\n```\n\n"
        "Other fields have their defaults; `provenance.recipe` in `manifest.json` has all.",
    }
    origin, weights = (
        f"Output layer: {_output_layer(manifest.output_layer, card.unit)}",
        _weights(manifest.quantization, card.digits),
    )
    return _card(manifest, card, origin, weights, sections)


def imported_card(manifest: Manifest, card: Card, texts: int, compared: str, *, tokens: bool) -> str:
    """Return the card of an imported model, Markdown.

    `texts` is the number of sample texts on which `compared` was, such as "a log-probability"; `tokens` tells whether
    their tokens were compared too.
    """
    source = manifest.provenance.source
    assert source is not None
    revision = "" if source.revision is None else f", revision {source.revision}"
    files = "\n".join(f"| `{name}` | `{checksum}` |" for name, checksum in source.files.items())
    sections = {
        "Verification": f"Compared with {source.compared_with} on {texts} sample texts of several lengths, alone and "
        f"in a batch:{' equal tokens,' if tokens else ''}\n"
        f"largest difference of {compared}, float32: {source.largest_difference:.1e}.",
        "Quality": f"The import measures no quality: see the model card of the source.{_agreement(manifest)}",
        **_calibration(card),
        "Limits": card.limits,
        "Source files": f"| file | sha256 |\n| --- | --- |\n{files}",
    }
    origin = (
        f"Imported on {manifest.provenance.date} from `{source.name}`{revision}; architecture {source.architecture}"
    )
    lossy = manifest.quantization
    weights = "float32" if lossy is None else f"{_integers(lossy)} ({lossy.metric} {lossy.value:.4f})"
    return _card(manifest, card, origin, weights, sections)


def with_calibration(text: str, manifest: Manifest, section: str, columns: Mapping[str, str]) -> str:
    """Return a model card with another section about calibration, and with the quality of a changed manifest.

    `columns` are those of the table of quality; rows of reference models stay where they have as many.
    """
    text = re.sub(rf"## {CALIBRATION}\n\n.*?(?=\n## )", "", text, flags=re.DOTALL).replace("\n\n\n## ", "\n\n## ")
    text = text.replace("\n## Limits\n", f"\n## {CALIBRATION}\n\n{section}\n\n## Limits\n", 1)
    old = re.search(r"(?m)^\| model \| data \| split \|.*\n(?:\|.*\n)+", text)
    if old is None or manifest.provenance.source is not None:
        return text
    rows = _table(manifest, Card(network="", outputs="", limits="", columns=columns, digits=4), {}).split("\n")
    width = rows[0].count("|")
    rows += [line for line in old[0].splitlines()[2:] if line[:14] != "| this model |" and line.count("|") == width]
    return text[: old.start()] + "\n".join(rows) + "\n" + text[old.end() :]


def with_quality(text: str, before: Card, after: Card) -> str:
    """Return a model card with the paragraphs about quality of a changed manifest; an imported bundle's has none."""
    old, new = (each.quality.split("\n\n") for each in (before, after))
    gone, added = ([each for each in some if each not in others] for some, others in ((old, new), (new, old)))
    place = gone or [each for each in old if each in new][-1:]
    if not added or not place or place[0] not in text:
        return text
    return text.replace(place[0], "\n\n".join([*([] if gone else place), *added]), 1)


def _calibration(card: Card) -> dict[str, str]:
    return {CALIBRATION: card.calibration} if card.calibration else {}


def _card(manifest: Manifest, card: Card, origin: str, weights: str, sections: Mapping[str, str]) -> str:
    parts = "\n\n".join(f"## {heading}\n\n{text}" for heading, text in sections.items())
    return f"""# {manifest.name}, version {manifest.version}

{manifest.description}

* {origin}
* Network: {card.network}
* {card.outputs}
* Licence of the model: {manifest.licence}
* Weights: {weights}
{_device_line(manifest)}
{parts}
"""


def _device_line(manifest: Manifest) -> str:
    """Return the line that names the graphs for GPUs, nothing where there are none."""
    files = [f"`{file}`" for graph in manifest.graphs.values() for file in graph.devices.values()]
    return f"{_DEVICES} {', '.join(files)}, with the same weights; activations are not int8\n" if files else ""


def with_device_line(text: str, manifest: Manifest) -> str:
    """Return a model card with the line that names the graphs for GPUs after that of the weights."""
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(_DEVICES)]
    return "".join(line + _device_line(manifest) if line.startswith("* Weights: ") else line for line in lines)


_DEVICES = "* Graphs for GPUs:"


def _source(source: DataSource) -> str:
    if not source.homepage.startswith("https://"):
        return f"* {source.name}: {source.licence}"
    return f"* {source.name}: {source.licence}, <{source.homepage}>"


def _splits(splits: Mapping[str, SplitData]) -> str:
    """Return a table of the records of each split, nothing where the manifest has none."""
    if not splits:
        return ""
    rows = [
        [
            name,
            split.dataset,
            str(split.records),
            _or_empty(split.classes),
            _or_empty(split.tokens),
            f"`{split.sha256}`",
        ]
        for name, split in splits.items()
    ]
    heading = ["split", "data", "records", "classes", "tokens", "sha256 of the records"]
    return "\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in (heading, ["---"] * len(heading), *rows))


def _or_empty(count: int | None) -> str:
    return "" if count is None else str(count)


def _trained(training: Training | None) -> str:
    return "" if training is None else f"\n\n{training_sentence(training)}"


def training_sentence(training: Training) -> str:
    """Return how far a model was trained, on which versions of the data, and of which epoch its weights are."""
    ends = {
        "planned": "",
        "patience": " (ended by loop.patience)",
        "time": " (ended by loop.minutes)",
        "interrupted": " (interrupted: training has not come to its end)",
    }
    earlier = "".join(
        f" Before that, {epochs} epochs on an earlier version of the data (sha256 of its training records {checksum})."
        for checksum, epochs in training.earlier.items()
    )
    return (
        f"Trained for {training.epochs} of {training.planned_epochs} epochs{ends[training.end]}, {training.steps} "
        f"updates; the weights are those of epoch {training.best_epoch}.{earlier}"
    )


def _output_layer(layer: SoftmaxLayer, unit: str) -> str:
    names = [_kernel(kernel.name, kernel.hyperparameters) for kernel in layer.kernels]
    names += map(_component, layer.components)
    parts = [f"mixture of {', '.join(names)}" if len(names) > 1 else names[0]]
    if layer.bias:
        parts.append(f"a bias for each of the {unit}")
    if layer.untied is not None:
        matrices = "in full" if layer.untied == "full" else f"by corrections of rank {layer.untied}"
        parts.append(f"projection matrices untied {matrices}")
    if layer.softcap is not None:
        parts.append(f"scores bounded by {layer.softcap:g}")
    if layer.alpha != 1.0:
        parts.append(f"{layer.distribution()}: {unit} below a threshold have probability 0")
    if layer.sparse_k is not None:
        parts.append(
            f"sparse-softmax over the {layer.sparse_k} best {unit}{' of each' if len(layer.kernels) > 1 else ''}"
        )
    return "; ".join(parts)


def _component(component: ContextComponent) -> str:
    """Return a component that is no kernel, with the words that it reads, and its weight where that is constant."""
    known = {"window": component.window, "weight": component.weight}
    values = component.hyperparameters | {name: value for name, value in known.items() if value is not None}
    return _kernel(component.name, values) + ("" if component.weight is not None else " of learnt weight")


def _kernel(name: str, hyperparameters: Mapping[str, float]) -> str:
    values = ", ".join(f"{key} = {value:g}" for key, value in hyperparameters.items())
    return f"`{name}` ({values})" if values else f"`{name}`"


def _agreement(manifest: Manifest) -> str:
    if manifest.quantization is None:
        return ""
    dataset = manifest.quantization.dataset
    compared = (each for each in manifest.quality if each.dataset == dataset)
    lines = "\n".join(f"* {each.metric}: {each.value:.4f}" for each in compared)
    observed = ", not those\nthat activations were observed on" if manifest.quantization.kind == "int8-static" else ""
    return f" Agreement of {_integers(manifest.quantization)} with float32 on {dataset}{observed}:\n\n{lines}"


def _integers(lossy: Quantization) -> str:
    """Return the type of quantized weights, such as `int8`."""
    return lossy.kind.partition("-")[0]


def _weights(lossy: Quantization | None, digits: int) -> str:
    if lossy is None:
        return "float32"
    values = [f"{value:.{digits}f}" for value in (lossy.value, lossy.float32_value)]
    return f"{_integers(lossy)} ({lossy.metric} {values[0]} against {values[1]} in float32)"


def _table(manifest: Manifest, card: Card, references: Mapping[str, float]) -> str:
    """Return the measured metrics as a table with a column for each."""
    columns = card.columns or {quality.metric: quality.metric for quality in manifest.quality}
    rows = [["model", "data", "split", *columns.values()], ["---"] * (3 + len(columns))]
    splits: dict[tuple[str, str], dict[str, float]] = {}
    for quality in manifest.quality:
        splits.setdefault((quality.dataset, quality.split), {})[quality.metric] = quality.value
    rows += [["this model", *where, *_numbers(columns, values, card.digits)] for where, values in splits.items()]
    first = manifest.quality[0]
    tested = next((quality.dataset for quality in manifest.quality if quality.split == "test"), first.dataset)
    for name, value in references.items():
        known = card.references or {first.metric: None}
        values = {metric: value if fixed is None else fixed for metric, fixed in known.items()}
        rows.append([name, tested, "test", *_numbers(columns, values, card.digits)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _numbers(columns: Iterable[str], values: Mapping[str, float], digits: int) -> list[str]:
    return [f"{values[column]:.{digits}f}" if column in values else "" for column in columns]
