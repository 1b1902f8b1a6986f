"""The part of an export that each task defines."""

import abc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import onnx

from models.backend import Backend
from models.text.tokenization import EncoderTokenizer, SubwordTokenizer, WordTokenizer
from training.bundling.graphs import ExportGraph
from training.bundling.model_card import Card

if TYPE_CHECKING:
    from training.bundling.bundle import Draft

__all__ = ["TOKENIZER", "TaskExport", "vocabulary_section"]

TOKENIZER = "tokenizer.json"
"""File of a bundle."""


def vocabulary_section(tokenizer: WordTokenizer | SubwordTokenizer | EncoderTokenizer) -> dict[str, object]:
    """Return the fields of a manifest's section that describe a tokenizer."""
    special = {"unknown": tokenizer.unknown_id, "end": tokenizer.end_id}
    if isinstance(tokenizer, EncoderTokenizer) and not tokenizer.starts_as_bert:
        special["start"] = tokenizer.start_id
    return {"tokenizer": TOKENIZER, "vocab_size": tokenizer.vocab_size, "special_tokens": special}


class TaskExport(abc.ABC):
    """Graphs, manifest section, verification and quantization of one trained model, and the card of any bundle."""

    torchscript: ClassVar[str]
    """Name of the TorchScript file."""
    quantization: ClassVar[str | None]
    """The method of `quantize`, as the manifest names it; None where there is none."""
    int4: ClassVar[bool] = False
    """Whether there is `quantize_int4`."""
    point: ClassVar[float] = 1.0
    """Size of a point of the first metric: 0.01 for a fraction."""
    graphs: Mapping[str, ExportGraph]
    calibration_files: Mapping[str, bytes] = {}
    """Files of the bundle that `calibrated` computed, by name."""

    @abc.abstractmethod
    def __init__(self, task: Any) -> None:
        """Raise `ExportError` for a model that cannot be exported."""

    @abc.abstractmethod
    def config(self) -> Mapping[str, object]:
        """Return the section of the manifest that the task's model class defines."""

    @abc.abstractmethod
    def files(self) -> Mapping[str, Callable[[Path], object]]:
        """Return the files in addition to graphs and model card, by name: a function that writes each."""

    @abc.abstractmethod
    def largest_difference(self, backend: Backend) -> float:
        """Return the largest difference of a backend's outputs from the module's, over several shapes."""

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        """Return the graphs with int8 weights, of a task with `quantization`."""
        raise NotImplementedError

    def quantize_int4(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        """Return the graphs with weights of 4 bits, of a task with `int4`."""
        raise NotImplementedError

    def calibrated(self, model: Any, data_dir: Path) -> Mapping[str, object]:
        """Return the fields of the section that are chosen on the validation split, by the finished bundle.

        May set `calibration_files`.
        """
        del model, data_dir
        return {}

    def extend(self, draft: "Draft", data_dir: Path) -> None:
        """Add to the graphs of a draft choices made on the validation split by the measured bundle."""
        del draft, data_dir

    @classmethod
    @abc.abstractmethod
    def card(cls, manifest: Any) -> Card:
        """Return the sentences of the model card that depend on the task."""
