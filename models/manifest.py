"""The bundle contract: what `manifest.json` says, and how a bundle directory is checked against it."""

import hashlib
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, ValidationError, model_validator

from models.errors import BundleError

__all__ = [
    "FORMAT_VERSION",
    "BertNetwork",
    "Classes",
    "DataSource",
    "Graph",
    "ImageNetwork",
    "Kernel",
    "Languages",
    "Limits",
    "LstmNetwork",
    "Manifest",
    "Provenance",
    "Quality",
    "Quantization",
    "SoftmaxLayer",
    "SpecialTokens",
    "TensorSpec",
    "TextInput",
    "TransformerNetwork",
    "Vocabulary",
    "read_manifest",
    "sha256_of",
    "validate",
]

FORMAT_VERSION = 1
"""The one format this code writes and reads."""

MANIFEST = "manifest.json"


def _plain_file_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(f"{name!r} is not a plain file name")
    return name


FileName = Annotated[str, AfterValidator(_plain_file_name)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PositiveInt = Annotated[int, Field(ge=1)]


class Vocabulary(Protocol):
    """What a tokenizer says of itself."""

    @property
    def vocab_size(self) -> int: ...

    unknown_id: int
    end_id: int


class _Contract(BaseModel):
    """Frozen; unknown keys are refused, so that a misspelt key is never silently without effect."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, strict=True, allow_inf_nan=False
    )


class TensorSpec(_Contract):
    """One input or output of a graph."""

    name: str
    dtype: Literal["bool", "uint8", "int64", "float32"]
    shape: tuple[str | int, ...]
    """A number, or the name of an axis that varies."""


class Graph(_Contract):
    """One computation, the same in every backend."""

    onnx: FileName | None = None
    """File of the ONNX graph."""
    torchscript: FileName | None = None
    """File of a TorchScript module that has this graph as a method of the same name."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Kernel(_Contract):
    """A component of the output layer (spec: the nine kernels)."""

    name: str
    hyperparameters: dict[str, float] = {}


class SoftmaxLayer(_Contract):
    """The output layer."""

    kernels: Annotated[tuple[Kernel, ...], Field(min_length=1)]
    """One per mixture component, in the order of the mixture weights."""
    sparse_k: PositiveInt | None = None
    """Classes that sparse-softmax keeps of each component, the others having probability 0; all without it."""
    untied: Literal["full"] | PositiveInt | None = None
    """Projection matrices of a mixture: one for all components, or each its own, or rank-r corrections of one."""


class LstmNetwork(_Contract):
    """What a caller must know of a recurrent network to hold its state."""

    kind: Literal["lstm"]
    hidden_size: PositiveInt
    num_layers: PositiveInt


class TransformerNetwork(_Contract):
    """What a caller must know of a Transformer to hold its caches."""

    kind: Literal["transformer"]
    hidden_size: PositiveInt
    inner_size: PositiveInt
    heads: PositiveInt
    encoder_layers: PositiveInt
    decoder_layers: PositiveInt
    norm: Literal["pre", "post"]
    positions: PositiveInt = 1024
    """Tokens that a sentence may have on either side, its end included."""


class BertNetwork(_Contract):
    """What there is to know of an encoder of texts."""

    kind: Literal["bert"]
    hidden_size: PositiveInt
    inner_size: PositiveInt
    heads: PositiveInt
    layers: PositiveInt
    pooling: Literal["mean", "cls"]
    positions: PositiveInt
    """Tokens that a text may have, the special ones included."""


class Classes(_Contract):
    """What a classifier tells apart."""

    file: FileName
    """A label a line, in the order of the classes' numbers."""
    count: Annotated[int, Field(ge=2)]
    threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Where a text can be of several classes: the probability from which on it is of one, besides the best."""


class Languages(_Contract):
    """What a translator reads and writes, as ISO 639-1 codes."""

    source: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]
    target: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]


class ImageNetwork(_Contract):
    """What there is to know of an encoder of images."""

    kind: Literal["efficientnet-lite0", "densenet"]
    hidden_size: PositiveInt
    image_size: PositiveInt
    """Height and width that every image is brought to first."""


class Limits(_Contract):
    """What the model accepts."""

    max_tokens: PositiveInt | None = None
    """Longest text, or sentence of a text that is translated sentence by sentence, in tokens."""
    max_pixels: PositiveInt | None = None
    """Largest image, height times width."""


class SpecialTokens(_Contract):
    """Ids with a meaning beyond their spelling."""

    unknown: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=0)]


class Quality(_Contract):
    """One number measured on the exported bundle."""

    metric: str
    value: float
    dataset: str
    split: str


class DataSource(_Contract):
    """A corpus the model was trained on."""

    name: str
    homepage: str
    licence: str


class Provenance(_Contract):
    """Where the model comes from."""

    recipe: dict[str, Any]
    """The resolved recipe."""
    git_revision: str
    """Of the code that trained it."""
    data: tuple[DataSource, ...]
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    training_seconds: Annotated[float, Field(ge=0)]


class Quantization(_Contract):
    """How weights were narrowed, and what that cost."""

    kind: Literal["int8-dynamic", "int8-static"]
    metric: str
    value: float
    """The metric after quantization."""
    float32_value: float
    """The metric before."""
    dataset: str
    split: str


@dataclass(frozen=True, slots=True)
class TextInput:
    """What a model that reads texts has."""

    tokenizer: str
    vocab_size: int
    special_tokens: SpecialTokens
    max_tokens: int


_TASKS: Mapping[str, tuple[set[str], set[str]]] = {
    "language-model": ({"lstm"}, {"next_words", "score"}),
    "translation": ({"transformer"}, {"encode", "step"}),
    "text-classification": ({"bert"}, {"classify"}),
    "image-classification": ({"efficientnet-lite0", "densenet"}, {"classify"}),
}
"""Network kinds and graphs of each task."""

_OWNERS: Mapping[str, Callable[[str], bool]] = {
    "languages": lambda task: task == "translation",
    "classes": lambda task: task.endswith("-classification"),
    "tokenizer": lambda task: not task.startswith("image-"),
    "vocab_size": lambda task: not task.startswith("image-"),
    "special_tokens": lambda task: not task.startswith("image-"),
    "limits.max_tokens": lambda task: not task.startswith("image-"),
    "limits.max_pixels": lambda task: task.startswith("image-"),
}
"""Which tasks have which fields."""


class Manifest(_Contract):
    """`manifest.json` of a bundle."""

    format_version: Literal[1]
    task: Literal["language-model", "translation", "text-classification", "image-classification"]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    version: PositiveInt
    description: str
    licence: str
    """Of the trained model."""
    softmax: SoftmaxLayer
    network: Annotated[LstmNetwork | TransformerNetwork | BertNetwork | ImageNetwork, Discriminator("kind")]
    languages: Languages | None = None
    """Of a translator."""
    classes: Classes | None = None
    """Of a classifier."""
    graphs: dict[str, Graph]
    tokenizer: FileName | None = None
    """Of a model that reads texts, as the next two."""
    vocab_size: PositiveInt | None = None
    special_tokens: SpecialTokens | None = None
    limits: Limits
    quality: tuple[Quality, ...]
    provenance: Provenance
    quantization: Quantization | None = None
    files: dict[FileName, Sha256]
    """sha256 of every file of the bundle except the manifest itself."""

    @model_validator(mode="after")
    def _graphs_name_known_files(self) -> "Manifest":
        named = {file for file in (self.tokenizer, self.classes.file if self.classes else None) if file is not None}
        for name, graph in self.graphs.items():
            named |= {file for file in (graph.onnx, graph.torchscript) if file is not None}
            if graph.onnx is None and graph.torchscript is None:
                raise ValueError(f"graphs.{name} names no file")
        kinds, needed = _TASKS[self.task]
        if self.network.kind not in kinds:
            known = " or ".join(map(repr, sorted(kinds)))
            raise ValueError(f"network.kind of {self.task} is {known}, not {self.network.kind!r}")
        for name, has in _OWNERS.items():
            if (operator.attrgetter(name)(self) is not None) != has(self.task):
                raise ValueError(f"{name} must {'' if has(self.task) else 'not '}be given for {self.task}")
        if isinstance(self.network, TransformerNetwork) and self.text.max_tokens >= self.network.positions:
            raise ValueError(f"limits.max_tokens must be below network.positions, which is {self.network.positions}")
        if isinstance(self.network, BertNetwork) and self.text.max_tokens > self.network.positions:
            raise ValueError(f"limits.max_tokens must be at most network.positions, {self.network.positions}")
        if absent := needed - set(self.graphs):
            raise ValueError(f"graphs lacks {', '.join(sorted(absent))}")
        missing = sorted(named - set(self.files))
        if missing:
            raise ValueError(f"no checksum in files for {', '.join(missing)}")
        return self

    @property
    def text(self) -> TextInput:
        """What the manifest says of a model that reads texts."""
        assert self.tokenizer is not None
        assert self.vocab_size is not None
        assert self.special_tokens is not None
        assert self.limits.max_tokens is not None
        return TextInput(self.tokenizer, self.vocab_size, self.special_tokens, self.limits.max_tokens)

    def tokenizer_problems(self, tokenizer: Vocabulary) -> list[str]:
        """Where a tokenizer is not the one that the manifest describes."""
        return [
            f"{self.tokenizer}: its {name} is {found}, the manifest's {promised}"
            for name, found, promised in (
                ("vocab_size", tokenizer.vocab_size, self.text.vocab_size),
                ("unknown id", tokenizer.unknown_id, self.text.special_tokens.unknown),
                ("end id", tokenizer.end_id, self.text.special_tokens.end),
            )
            if found != promised
        ]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def validate(bundle: Path) -> list[str]:
    """Everything that is wrong with a bundle directory; an empty list where nothing is."""
    try:
        return list(_file_problems(bundle, read_manifest(bundle)))
    except BundleError as error:
        return list(error.problems)


def load_manifest(bundle: Path) -> Manifest:
    """The manifest of a bundle whose files are all there and unchanged; `BundleError` names all that is wrong."""
    manifest = read_manifest(bundle)
    problems = tuple(_file_problems(bundle, manifest))
    if problems:
        raise BundleError(str(bundle), problems)
    return manifest


def read_manifest(bundle: Path) -> Manifest:
    """The manifest alone, files unchecked; raises `BundleError`."""
    where = str(bundle)
    try:
        content = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(where, [f"{MANIFEST} is missing"]) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(where, [f"{MANIFEST} is not readable JSON: {error}"]) from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise BundleError(
            where, [f"format_version {version} is newer than {FORMAT_VERSION}, the one this release reads"]
        )
    try:
        return Manifest.model_validate_json(json.dumps(content))
    except ValidationError as error:
        problems = [f"{_place(e['loc'])}: {e['msg']}" for e in error.errors()]
        raise BundleError(where, problems) from error


def _place(location: tuple[str | int, ...]) -> str:
    """Where an error is, without the kind that pydantic puts between a network and its fields."""
    inner = location[:1] + location[2:] if location[:1] == ("network",) else location
    return ".".join(map(str, inner)) or MANIFEST


def _file_problems(bundle: Path, manifest: Manifest) -> Iterator[str]:
    if bundle.name != str(manifest.version):
        yield f"version {manifest.version} lies in a directory named {bundle.name!r}"
    if bundle.parent.name != manifest.name:
        yield f"model {manifest.name!r} lies in a directory named {bundle.parent.name!r}"
    for name, expected in manifest.files.items():
        path = bundle / name
        if not path.is_file():
            yield f"{name} is missing"
        elif sha256_of(path) != expected:
            yield f"{name} does not match its checksum"
