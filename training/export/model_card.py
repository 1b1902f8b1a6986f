"""MODEL_CARD.md of a bundle, written from its manifest and the sentences of its task."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import yaml

from models.bundle.manifest import DataSource, Manifest, Quantization, SoftmaxLayer
from training.recipe import parse_recipe
from training.tasks.registry import TASKS

__all__ = ["Card", "model_card", "with_device_line"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """The sentences of a model card that depend on the task."""

    unit: str
    """The plural noun for the outputs of the softmax: `words` or `classes`."""
    network: str
    """The network and its sizes."""
    outputs: str
    """Vocabulary or classes."""
    limits: str
    """Paragraph about accepted inputs and known weaknesses."""
    quality: str
    """Paragraph about how the metrics are computed."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Heading of each metric in the table of quality; all metrics of the manifest by name if empty."""
    references: Mapping[str, float | None] = field(default_factory=dict)
    """The values of reference models for each metric, None for the value that is given; the first metric if empty."""
    digits: int = 2
    """Decimals of metrics."""


def model_card(manifest: Manifest, *, differences: Mapping[str, float], references: Mapping[str, float]) -> str:
    """Return Markdown; `references` are other models' values of the first metric on the test split."""
    card = TASKS[manifest.task].exporter.card(manifest)
    provenance, data = manifest.provenance, manifest.provenance.data
    sources = "\n".join(_source(source) for source in data)
    largest = ", ".join(f"{name} {difference:.1e}" for name, difference in differences.items())
    return f"""# {manifest.name}, version {manifest.version}

{manifest.description}

* Output layer: {_output_layer(manifest.softmax, card.unit)}
* Network: {card.network}
* {card.outputs}
* Licence of the model: {manifest.licence}
* Weights: {_weights(manifest.quantization, card.digits)}
{device_line(manifest)}
## Data

{sources}

## Quality

{card.quality}

{_table(manifest, card, references)}

Exported graphs against the trained module, largest difference of any output, float32: {largest}.

## Limits

{card.limits}

## Recipe

Exported on {provenance.date} after {provenance.training_seconds:.0f} s of training; code {provenance.git_revision}.

```yaml
{_recipe(provenance.recipe)}
```

Other fields have their defaults; `provenance.recipe` in `manifest.json` has all.
"""


def _recipe(content: Mapping[str, object]) -> str:
    """Return a recipe in YAML without fields that have their defaults, which may say nothing of the network."""
    given = parse_recipe(content).model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(given, sort_keys=False).strip()


def device_line(manifest: Manifest) -> str:
    """Return the line that names the graphs for GPUs, nothing where there are none."""
    files = [f"`{file}`" for graph in manifest.graphs.values() for file in graph.devices.values()]
    return f"{_DEVICES} {', '.join(files)}, with the same weights; activations are not int8\n" if files else ""


def with_device_line(text: str, manifest: Manifest) -> str:
    """Return a model card with the line that names the graphs for GPUs after that of the weights."""
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(_DEVICES)]
    return "".join(line + device_line(manifest) if line.startswith("* Weights: ") else line for line in lines)


_DEVICES = "* Graphs for GPUs:"


def _source(source: DataSource) -> str:
    if not source.homepage.startswith("https://"):
        return f"* {source.name}: {source.licence}"
    return f"* {source.name}: {source.licence}, <{source.homepage}>"


def _output_layer(layer: SoftmaxLayer, unit: str) -> str:
    kernels = ", ".join(_kernel(kernel.name, kernel.hyperparameters) for kernel in layer.kernels)
    parts = [f"mixture of {kernels}" if len(layer.kernels) > 1 else kernels]
    if layer.bias:
        parts.append(f"a bias for each of the {unit}")
    if layer.untied is not None:
        matrices = "in full" if layer.untied == "full" else f"by corrections of rank {layer.untied}"
        parts.append(f"projection matrices untied {matrices}")
    if layer.sparse_k is not None:
        parts.append(
            f"sparse-softmax over the {layer.sparse_k} best {unit}{' of each' if len(layer.kernels) > 1 else ''}"
        )
    return "; ".join(parts)


def _kernel(name: str, hyperparameters: Mapping[str, float]) -> str:
    values = ", ".join(f"{key} = {value:g}" for key, value in hyperparameters.items())
    return f"`{name}` ({values})" if values else f"`{name}`"


def _weights(lossy: Quantization | None, digits: int) -> str:
    if lossy is None:
        return "float32"
    values = [f"{value:.{digits}f}" for value in (lossy.value, lossy.float32_value)]
    return f"int8 ({lossy.metric} {values[0]} against {values[1]} in float32)"


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
