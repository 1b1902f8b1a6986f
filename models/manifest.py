"""The bundle contract: what `manifest.json` says, and how a bundle directory is checked against it."""

import hashlib
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field, ValidationError, model_validator

from models.contract import Contract, PositiveInt
from models.errors import BundleError
from models.networks import BertNetwork, Network, TransformerNetwork, UnilmNetwork

__all__ = [
    "FORMAT_VERSION",
    "Classes",
    "DataSource",
    "Graph",
    "Kernel",
    "Languages",
    "Limits",
    "Manifest",
    "Provenance",
    "Quality",
    "Quantization",
    "SoftmaxLayer",
    "SpecialTokens",
    "TensorSpec",
    "TextInput",
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


class Vocabulary(Protocol):
    """What a tokenizer says of itself."""

    @property
    def vocab_size(self) -> int: ...

    unknown_id: int
    end_id: int


class TensorSpec(Contract):
    """One input or output of a graph."""

    name: str
    dtype: Literal["bool", "uint8", "int64", "float32"]
    shape: tuple[str | int, ...]
    """A number, or the name of an axis that varies."""


class Graph(Contract):
    """One computation, the same in every backend."""

    onnx: FileName | None = None
    """File of the ONNX graph."""
    torchscript: FileName | None = None
    """File of a TorchScript module that has this graph as a method of the same name."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Kernel(Contract):
    """A component of the output layer (spec: the nine kernels)."""

    name: str
    hyperparameters: dict[str, float] = Field(default_factory=dict)


class SoftmaxLayer(Contract):
    """The output layer."""

    kernels: Annotated[tuple[Kernel, ...], Field(min_length=1)]
    """One per mixture component, in the order of the mixture weights."""
    sparse_k: PositiveInt | None = None
    """Classes that sparse-softmax keeps of each component, the others having probability 0; all without it."""
    untied: Literal["full"] | PositiveInt | None = None
    """Projection matrices of a mixture: one for all components, or each its own, or rank-r corrections of one."""


class Classes(Contract):
    """What a classifier tells apart."""

    file: FileName
    """A label a line, in the order of the classes' numbers."""
    count: Annotated[int, Field(ge=2)]
    threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Where a text can be of several classes: the probability from which on it is of one, besides the best."""


class Languages(Contract):
    """What a translator reads and writes, as ISO 639-1 codes."""

    source: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]
    target: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]


class Limits(Contract):
    """What the model accepts."""

    max_tokens: PositiveInt | None = None
    """Longest text, or sentence of a text that is translated sentence by sentence, in tokens."""
    max_output_tokens: PositiveInt | None = None
    """Longest text that a generator writes, its end not counted."""
    max_pixels: PositiveInt | None = None
    """Largest image, height times width."""


class SpecialTokens(Contract):
    """Ids with a meaning beyond their spelling."""

    unknown: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=0)]


class Quality(Contract):
    """One number measured on the exported bundle."""

    metric: str
    value: float
    dataset: str
    split: str


class DataSource(Contract):
    """A corpus the model was trained on."""

    name: str
    homepage: str
    licence: str


class Provenance(Contract):
    """Where the model comes from."""

    recipe: dict[str, Any]
    """The resolved recipe."""
    git_revision: str
    """Of the code that trained it."""
    data: tuple[DataSource, ...]
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    training_seconds: Annotated[float, Field(ge=0)]


class Quantization(Contract):
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
    "text-generation": ({"unilm"}, {"encode", "step"}),
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
    "limits.max_output_tokens": lambda task: task == "text-generation",
    "limits.max_pixels": lambda task: task.startswith("image-"),
}
"""Which tasks have which fields."""


class Manifest(Contract):
    """`manifest.json` of a bundle."""

    format_version: Literal[1]
    task: Literal["language-model", "translation", "text-generation", "text-classification", "image-classification"]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    version: PositiveInt
    description: str
    licence: str
    """Of the trained model."""
    softmax: SoftmaxLayer
    network: Network
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
        if absent := needed - set(self.graphs):
            raise ValueError(f"graphs lacks {', '.join(sorted(absent))}")
        missing = sorted(named - set(self.files))
        if missing:
            raise ValueError(f"no checksum in files for {', '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _limits_fit_the_network(self) -> "Manifest":
        if isinstance(self.network, TransformerNetwork) and self.text.max_tokens >= self.network.positions:
            raise ValueError(f"limits.max_tokens must be below network.positions, which is {self.network.positions}")
        if isinstance(self.network, BertNetwork) and self.text.max_tokens > self.network.positions:
            raise ValueError(f"limits.max_tokens must be at most network.positions, {self.network.positions}")
        if isinstance(self.network, UnilmNetwork):
            assert self.limits.max_output_tokens is not None
            longest = self.text.max_tokens + self.limits.max_output_tokens
            if longest > self.network.positions:
                raise ValueError(
                    f"limits.max_tokens and limits.max_output_tokens must be at most network.positions, "
                    f"{self.network.positions}, together"
                )
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
        yield from _checksum_problems(bundle / name, expected)
    yield from _unlisted(bundle, manifest)


def _checksum_problems(path: Path, expected: str) -> Iterator[str]:
    try:
        if not path.is_file():
            yield f"{path.name} is missing"
        elif sha256_of(path) != expected:
            yield f"{path.name} does not match its checksum"
    except OSError as error:
        yield f"{path.name} cannot be read: {error.strerror}"


def _unlisted(bundle: Path, manifest: Manifest) -> Iterator[str]:
    """Yield what lies in the directory and has no checksum.

    A graph names files of weights that the manifest does not, so an unlisted file may change what a model answers. So
    may one in a sub-directory, which `files` cannot list. A symbolic link is listed and checked like the file that
    it leads to.
    """
    for path in sorted(bundle.iterdir()):
        if path.name != MANIFEST and path.name not in manifest.files:
            kind = "is a directory, which a bundle must not have" if path.is_dir() else "has no checksum in files"
            yield f"{path.name} {kind}"
