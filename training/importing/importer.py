"""What the import of an architecture defines, and the registry of architectures.

A new architecture is one module of this package with a subclass of `Importer`, registered by the name that it has in
`architectures` of `config.json`.
"""

import abc
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import onnx

from models.bundle.manifest import Graph
from models.registry import Registry, UnknownNameError
from training.importing.errors import ImportRefused
from training.importing.source import SourceDirectory

__all__ = [
    "ARCHITECTURES",
    "ONNX",
    "Agreement",
    "ImportCard",
    "ImportOptions",
    "ImportedGraph",
    "Importer",
    "chosen_importer",
    "need",
    "register",
]

ONNX = "ONNX"
"""The architecture of a source that is an ONNX file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """Values from the caller that replace those of the directory."""

    max_tokens: int | None = None
    """Longest text, in tokens; the largest possible one by default."""
    languages: str | None = None
    """Source and target language of a translation model, such as `de-en`."""


@dataclass(frozen=True, slots=True)
class ImportedGraph:
    """A graph of the bundle and its contract."""

    contract: Graph
    model: onnx.ModelProto


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How far the results of int8 graphs agree with those of float32 on sample texts."""

    metric: str
    value: float
    """Fraction of the texts with the same best result."""
    difference: float
    """Largest difference of a probability."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportCard:
    """The sentences of a model card that depend on the architecture."""

    network: str
    """The network and its sizes."""
    outputs: str
    """Vocabulary, classes or languages."""
    limits: str
    """Paragraph about accepted inputs."""


class Importer(abc.ABC):
    """Section, files, graphs, verification and quantization of one imported model."""

    task: ClassVar[str]
    """The task of the bundle."""
    quantization: ClassVar[str | None] = "int8-static"
    """The method of `quantize`, as the manifest names it; None where there is none."""
    reference: ClassVar[tuple[str, ...]] = ("transformers",)
    """The packages that compute the reference."""

    @abc.abstractmethod
    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        """Raise `ImportRefused` for a model that cannot become a bundle."""

    @abc.abstractmethod
    def section(self) -> Mapping[str, object]:
        """Return the section of the manifest that the task's model class defines."""

    def softmax(self) -> Mapping[str, object]:
        """Return the output layer as the manifest describes it: inner products and a bias by default."""
        return {"kernels": [{"name": "lin"}], "bias": True}

    @abc.abstractmethod
    def files(self) -> Mapping[str, Callable[[Path], object]]:
        """Return the files in addition to graphs and model card, by name: a function that writes each."""

    @abc.abstractmethod
    def graphs(self) -> Mapping[str, ImportedGraph]:
        """Return the graphs by name, in float32."""

    @abc.abstractmethod
    def largest_difference(self, model: Any, bundle: Path, texts: Sequence[str]) -> float:
        """Return the largest difference of a log-probability of the loaded float32 bundle from the reference.

        Each text is computed alone and in a batch. Raises `ImportRefused` where the tokens of a text differ.
        """

    @abc.abstractmethod
    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Any, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        """Return the graphs with int8 products, by ranges of activations on texts; `model` is the float32 bundle."""

    @abc.abstractmethod
    def agreement(self, float32: Any, int8: Any, texts: Sequence[str]) -> Agreement:
        """Compare two loaded bundles."""

    @abc.abstractmethod
    def card(self) -> ImportCard:
        """Return the sentences of the model card."""


ARCHITECTURES: Registry[type[Importer]] = Registry("training.importing", "architecture")
"""The importer of each architecture."""

register = ARCHITECTURES.register
"""Register an importer under an architecture: `@register("BertForSequenceClassification")`."""


def chosen_importer(source: SourceDirectory) -> type[Importer]:
    """Return the importer for a source; raises `ImportRefused` for an architecture that none is registered for."""
    try:
        return ARCHITECTURES[ONNX if source.onnx else source.architecture]
    except UnknownNameError as error:
        raise ImportRefused(str(error)) from error


def need(package: str) -> Any:
    """Return a module of the extra `import`; raises `ImportRefused`, which says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportRefused(f'imports need {package}: pip install "softserve[import]"') from error
