"""The bundle contract: what `manifest.json` says.

Format 2 has a section `config` that belongs to the task; format 1, which had the same fields at the top, is read too.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import Field, model_validator

from models.bundle.contract import Contract, FileName, PositiveInt, TaskConfig

__all__ = [
    "FORMAT_VERSION",
    "MANIFEST",
    "SIGNATURE",
    "AnyManifest",
    "BundleManifest",
    "ContextComponent",
    "DataSource",
    "Graph",
    "ImportSource",
    "Kernel",
    "Manifest",
    "Provenance",
    "Quality",
    "Quantization",
    "SoftmaxLayer",
    "SplitData",
    "TensorSpec",
    "Training",
    "upgraded",
]

FORMAT_VERSION = 2
"""The format that this code writes; it reads this one and format 1."""

MANIFEST = "manifest.json"

INT4_WEIGHTS: Literal["int4-weights"] = "int4-weights"
"""The kind of quantization of bundles with 4-bit weights."""

SIGNATURE = "model.sig"
"""The signature of a bundle, the only file that a manifest does not list; a bundle need not have one."""

ConfigT = TypeVar("ConfigT", bound=TaskConfig, covariant=True)

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TensorSpec(Contract):
    """One input or output of a graph."""

    name: str
    """Name of the input or output in the graph."""
    dtype: Literal["bool", "uint8", "int64", "float32"]
    """Type of its elements."""
    shape: tuple[str | int, ...]
    """A number, or the name of an axis that varies."""


class Graph(Contract):
    """One computation, the same in every backend."""

    onnx: FileName | None = None
    """File of the ONNX graph."""
    devices: dict[Literal["cuda"], FileName] = Field(default_factory=dict)
    """Files of ONNX graphs for kinds of device that `onnx` does not serve."""
    torchscript: FileName | None = None
    """File of a TorchScript module that has this graph as a method of the same name."""
    inputs: tuple[TensorSpec, ...]
    """Inputs, in the order of the graph."""
    outputs: tuple[TensorSpec, ...]
    """Outputs, in the order of the graph."""

    def files(self) -> frozenset[str]:
        """Return the files that hold the graph."""
        return frozenset(file for file in (self.onnx, self.torchscript, *self.devices.values()) if file is not None)


class Kernel(Contract):
    """A component of the output layer: a built-in kernel, or the path of another one's class."""

    name: str
    """Name of the kernel, or dotted path of its class."""
    hyperparameters: dict[str, float] = Field(default_factory=dict)
    """Values of its hyperparameters, by name."""


class ContextComponent(Contract):
    """A component of the output layer that is no kernel: a distribution that may depend on words before or a source."""

    name: str
    """`cache`, `pointer`, `unigram` or `copy`, or dotted path of another one's class."""
    window: PositiveInt | None = None
    """The most words before a position that it reads; none where it reads no words."""
    weight: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Its constant weight in the mixture; none where the weight is learnt."""
    hyperparameters: dict[str, float] = Field(default_factory=dict)
    """Values of its other hyperparameters, by name."""


def _is_empty(components: tuple[ContextComponent, ...]) -> bool:
    return not components


class SoftmaxLayer(Contract):
    """The output layer."""

    kernels: Annotated[tuple[Kernel, ...], Field(min_length=1)]
    """One for each mixture component that is a kernel, in the order of the mixture weights."""
    components: tuple[ContextComponent, ...] = Field(
        default=(),
        exclude_if=_is_empty,
        description="The other mixture components, whose weights follow those of the kernels.",
    )
    sparse_k: PositiveInt | None = None
    """Classes that sparse-softmax keeps of each component, the others having probability 0; all without it."""
    alpha: Annotated[float, Field(ge=1, le=2)] = 1.0
    """1 where the distribution is a softmax, 1.5 for entmax, 2 for sparsemax (Peters et al. 2019)."""
    untied: Literal["full"] | PositiveInt | None = None
    """Projection matrices of a mixture: one for all components, or each its own, or rank-r corrections of one."""
    bias: bool = False
    """Whether each class has a number of its own that is added to its score."""
    softcap: Annotated[float, Field(gt=0)] | None = None
    """Bound c of scores, which are `c tanh(z / c)` instead of z; none without it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all mixture components, in the order of the mixture weights."""
        return tuple(each.name for each in self.parts)

    @property
    def parts(self) -> tuple[Kernel | ContextComponent, ...]:
        """Return all mixture components, in the order of the mixture weights."""
        return (*self.kernels, *self.components)

    @property
    def titles(self) -> tuple[str, ...]:
        """Return `names` with the values of hyperparameters, such as `cos (scale = 16.1)`."""
        values = (", ".join(f"{key} = {value:g}" for key, value in each.hyperparameters.items()) for each in self.parts)
        return tuple(f"{name} ({own})" if own else name for name, own in zip(self.names, values, strict=True))

    @property
    def window(self) -> int | None:
        """Return the most words before a position that a component reads; None where none reads words."""
        return max((each.window for each in self.components if each.window is not None), default=None)

    @property
    def has_zeros(self) -> bool:
        """Return whether classes can have probability 0."""
        return self.sparse_k is not None or self.alpha != 1.0

    def distribution(self) -> str | None:
        """Return the distribution in words where it is no softmax."""
        if self.sparse_k is not None:
            return f"sparse-softmax over the {self.sparse_k} best"
        if self.alpha != 1.0:
            return f"{'entmax' if self.alpha == 1.5 else 'sparsemax'} (alpha = {self.alpha:g})"
        return None


class Quality(Contract):
    """One number measured on the exported bundle."""

    metric: str
    """Name of the metric."""
    value: float
    """Its value."""
    dataset: str
    """Name of the data set."""
    split: str
    """Split of the data set."""


class DataSource(Contract):
    """A corpus the model was trained on."""

    name: str
    """Name of the corpus."""
    homepage: str
    """Its homepage, or `user's own files`."""
    licence: str
    """Its licence."""


class ImportSource(Contract):
    """The files that a model was imported from, and the program that it was compared with."""

    name: str
    """Name of the directory or file, or owner and name on the Hugging Face Hub."""
    revision: str | None = None
    """Commit on the Hub."""
    architecture: str
    """Class of the model in transformers, or format of the file."""
    files: dict[str, Sha256]
    """sha256 of every file that was read."""
    compared_with: str
    """Program that computed the reference on sample texts, with its version."""
    largest_difference: Annotated[float, Field(ge=0)]
    """Largest difference of a log-probability from the reference, in float32."""


class SplitData(Contract):
    """The records of a split that a model was trained on, selected by or measured on."""

    dataset: str
    """File or corpus."""
    records: Annotated[int, Field(ge=0)]
    """Number of texts, pairs, lines or images."""
    classes: Annotated[int, Field(ge=0)] | None = None
    """Number of different classes of the records, for a classifier."""
    tokens: Annotated[int, Field(ge=0)] | None = None
    """Number of tokens; none for images, and where the data was not there any more when the model was exported."""
    sha256: Sha256
    """Hash of the records in their order, as in `data.json` of the run."""


class Training(Contract):
    """How far a model was trained."""

    epochs: Annotated[int, Field(ge=0)]
    """Epochs that were trained to their end."""
    planned_epochs: PositiveInt
    """Epochs of the recipe."""
    steps: Annotated[int, Field(ge=0)]
    """Updates."""
    best_epoch: Annotated[int, Field(ge=0)]
    """Epoch of the evaluation whose weights are exported."""
    earlier: dict[Sha256, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """Epochs on each earlier version of the data, by the hash of its training records: `--continue-with-new-data`."""
    end: Literal["planned", "patience", "time", "interrupted"]
    """Whether training came to the end of its epochs or steps, was ended by patience or its time, or was not ended."""


class Provenance(Contract):
    """The origin of the model: recipe, code, data, date; of an imported one the files that it was made from."""

    recipe: dict[str, Any]
    """The resolved recipe; empty for an imported model."""
    git_revision: str
    """Git revision of the code that trained or imported the model."""
    data: tuple[DataSource, ...]
    """Corpora of the training data, and of the weights that training started from."""
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    """Day of the export."""
    training_seconds: Annotated[float, Field(ge=0)]
    """Duration of the training; 0 for an imported model."""
    training: Training | None = None
    """How far the model was trained; none for an imported model, and in bundles of earlier versions."""
    splits: dict[str, SplitData] = Field(default_factory=dict)
    """Data of each split; none for an imported model, and in bundles of earlier versions."""
    source: ImportSource | None = None
    """Files of an imported model."""


class Quantization(Contract):
    """How weights were narrowed, and what that cost."""

    kind: Literal["int8-weights", "int8-dynamic", "int8-static", "int4-weights"]
    """Whether weights alone are int8 (activations stay float32, or have 16 bits), or activations are quantized as well
    with ranges computed for each batch (`int8-dynamic`: older bundles, and tasks from outside), or fixed on samples; or
    whether weights have 4 bits in blocks, with activations of 8 bits."""
    metric: str
    """Name of the metric."""
    value: float
    """The metric after quantization."""
    float32_value: float
    """The metric before."""
    dataset: str
    """Name of the data set."""
    split: str
    """Split of the data set."""


BundleName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]


class BundleManifest(Contract, Generic[ConfigT]):
    """`manifest.json` of a bundle, with the section of its task."""

    format_version: Literal[2]
    """Format of the manifest."""
    task: str
    """Name of the task, as its package registers it."""
    name: BundleName
    """Name of the model and of its directory."""
    version: PositiveInt
    """Version of the model and name of its directory."""
    description: str
    """One sentence for the model list."""
    licence: str
    """Licence of the trained model."""
    softmax: SoftmaxLayer | None = None
    """The output layer; none of a model without classes, such as one of embeddings."""
    config: ConfigT
    """The section of the task."""
    graphs: dict[str, Graph]
    """Computations of the model, by name."""
    quality: tuple[Quality, ...]
    """Metrics that were measured when the bundle was exported."""
    provenance: Provenance
    """The origin of the model."""
    quantization: Quantization | None = None
    """How weights were quantized; none where they are float32."""
    files: dict[FileName, Sha256]
    """sha256 of every file of the bundle except the manifest itself and its signature `model.sig`."""

    @model_validator(mode="after")
    def _graphs_and_files(self) -> Self:
        problems = [f"graphs.{name} names no file" for name, graph in self.graphs.items() if not graph.files()]
        if self.softmax is None and self.config.has_output_layer:
            problems.append("softmax is missing")
        if absent := self.config.required_graphs - set(self.graphs):
            problems.append(f"graphs lacks {', '.join(sorted(absent))}")
        named = self.config.files().union(*(graph.files() for graph in self.graphs.values()))
        if missing := sorted(named - set(self.files)):
            problems.append(f"no checksum in files for {', '.join(missing)}")
        if SIGNATURE in self.files:
            problems.append(f"files lists {SIGNATURE}, which is the name of a signature")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def output_layer(self) -> SoftmaxLayer:
        """Return the output layer of a model that has one."""
        assert self.softmax is not None, f"models of the task {self.task} have no output layer"
        return self.softmax


Manifest = BundleManifest[TaskConfig]
"""The manifest of any task."""
AnyManifest = BundleManifest[Any]
"""A manifest whose section a task knows."""

_CONFIG_FIELDS = ("network", "languages", "classes", "tokenizer", "vocab_size", "special_tokens", "limits")
"""Fields of format 1 that belong to the section of the task since format 2."""


def upgraded(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a manifest of format 1 as format 2 says it, and any other content as it is."""
    if content.get("format_version") != 1:
        return dict(content)
    config = {name: content[name] for name in _CONFIG_FIELDS if content.get(name) is not None}
    if isinstance(limits := config.get("limits"), dict):
        config["limits"] = {name: value for name, value in limits.items() if value is not None}
    rest = {name: value for name, value in content.items() if name not in _CONFIG_FIELDS}
    return {**rest, "format_version": FORMAT_VERSION, "config": config}
