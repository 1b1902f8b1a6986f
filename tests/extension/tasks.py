"""A task from outside the package, as a user would write it: the remainder of a number on division by five."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from models.backend import Backend
from models.bundle.contract import PositiveInt, TaskConfig
from models.bundle.manifest import BundleManifest
from models.tasks.model import BatchFunction, Model, Part
from training.bundling.folding import FoldedSoftmax
from training.bundling.graphs import ExportGraph
from training.bundling.model_card import Card
from training.bundling.quantize import quantize_int8_weights
from training.bundling.task_export import TaskExport
from training.bundling.topk import top_k
from training.data.settings import DataSection, source
from training.networks.softmax_model import SoftmaxModel
from training.recipe import Recipe
from training.run.directory import RunDirectory
from training.settings import Settings
from training.softmax import GeneralizedSoftmax
from training.tasks.classification_export import classify_contract, largest_difference
from training.tasks.evaluation import evaluate_batches
from training.tasks.examples import Measurement
from training.tasks.task import Task

DIVISOR = 5


def digits_of(numbers: Sequence[int]) -> list[list[int]]:
    return [[number // 100 % 10, number // 10 % 10, number % 10] for number in numbers]


class RemainderConfig(TaskConfig):
    """The section of the manifest."""

    required_graphs = frozenset({"classify"})
    divisor: PositiveInt


class RemainderModel(Model[RemainderConfig]):
    """A loaded bundle."""

    config_type = RemainderConfig
    offers = ("divide",)

    @classmethod
    def from_bundle(cls, path: Path, manifest: BundleManifest[Any], backend: Backend) -> Self:
        return cls(manifest, backend)

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"divide": self.remainders}

    def warm_up_parts(self, operation: str, count: int, length: int) -> Sequence[Part]:
        raise AssertionError("it is not served here")

    def remainders(self, numbers: Sequence[int]) -> list[int]:
        inputs = {"digits": np.array(digits_of(numbers)), "k": np.array(1)}
        (classes,) = self.backend.run("classify", inputs, ["classes"])
        return [int(number) for number in classes[:, 0]]


class Numbers(DataSection):
    """The numbers below 300; every tenth is for development, every tenth for the test."""

    searchable = ("batch_size",)
    batch_size: int = 30

    def dataset(self, split: str) -> str:
        return "numbers"

    def sources(self) -> list[dict[str, str]]:
        return [source("numbers", "https://example.org/numbers", "CC0")]

    def split(self, split: str) -> list[int]:
        return [number for number in range(300) if {3: "dev", 7: "test"}.get(number // 7 % 10, "train") == split]


class Sizes(Settings):
    """The network."""

    hidden_size: int = 16


class RemainderRecipe(Recipe):
    """The recipe."""

    task: Literal["remainder"]
    data: Numbers = Numbers()
    network: Sizes = Sizes()


class Network(SoftmaxModel):
    """One vector for each digit at each place, summed."""

    def __init__(self, hidden_size: int, output_layer: GeneralizedSoftmax) -> None:
        super().__init__()
        self.digits = nn.Linear(30, hidden_size)
        self.output_layer = output_layer

    def forward(self, digits: Tensor) -> Tensor:
        """`[B, 3]` -> `[B, d]`"""
        hidden: Tensor = self.digits((digits[..., None] == torch.arange(10)).float().flatten(1))
        return hidden


class Graph(nn.Module):
    """The exported graph."""

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = model
        self.output_layer = FoldedSoftmax(model.output_layer)

    def forward(self, digits: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return top_k(self.output_layer.log_prob(self.model(digits)), k)


class RemainderExport(TaskExport):
    """The export."""

    torchscript = "remainder.pt"
    quantization = "int8-weights"

    def __init__(self, task: "RemainderTask") -> None:
        contract = classify_contract({"digits": ("int64", ("batch", 3))})
        examples = (torch.tensor(digits_of([123, 4, 56])), torch.tensor(2))
        self.graphs = {"classify": ExportGraph(Graph(task.model).eval(), contract, examples)}

    def config(self) -> Mapping[str, object]:
        return {"divisor": DIVISOR}

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {}

    def largest_difference(self, backend: Backend) -> float:
        return largest_difference(
            backend, self.graphs["classify"], [(torch.tensor(digits_of([9, 280])),)], num_classes=DIVISOR
        )

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        return {name: quantize_int8_weights(model) for name, model in models.items()}

    @classmethod
    def card(cls, manifest: BundleManifest[RemainderConfig]) -> Card:
        return Card(
            unit="classes",
            network="linear",
            outputs=f"Remainders: {manifest.config.divisor}",
            limits="Numbers below 1,000.",
            quality="Fractions in [0, 1].",
        )


@dataclass(frozen=True)
class NumberBatch:
    """Digits `[B, 3]` and remainders `[B]`."""

    digits: Tensor
    targets: Tensor


class NumberBatches:
    """Numbers in their order."""

    def __init__(self, numbers: Sequence[int], size: int) -> None:
        self._groups = [numbers[first : first + size] for first in range(0, len(numbers), size)]

    def __len__(self) -> int:
        return len(self._groups)

    def epoch(self, number: int) -> Iterator[NumberBatch]:
        for group in self._groups:
            yield NumberBatch(torch.tensor(digits_of(group)), torch.tensor(group) % DIVISOR)


@dataclass(frozen=True)
class Accuracy:
    """The metric."""

    value: float


class RemainderTask(Task[NumberBatch]):
    """The task; nothing of it is taken from the tasks of the package."""

    recipe_type = RemainderRecipe
    exporter = RemainderExport
    metric = "accuracy"
    outputs = "remainders"
    recipe: RemainderRecipe
    model: Network

    def __init__(self, recipe: RemainderRecipe, data_dir: Path, device: torch.device) -> None:
        self.recipe, self.data_dir, self.device = recipe, data_dir, device
        size = recipe.network.hidden_size
        self.model = Network(size, recipe.output_layer.build(DIVISOR, size)).to(device)

    @classmethod
    def prepare(
        cls, recipe: RemainderRecipe, run: RunDirectory, data_dir: Path
    ) -> Mapping[Path, Callable[[Path], object]]:
        return {run.path / "divisor.txt": lambda path: path.write_text(str(DIVISOR))}

    @classmethod
    def open(cls, recipe: RemainderRecipe, run: RunDirectory, data_dir: Path, device: torch.device) -> Self:
        assert (run.path / "divisor.txt").read_text() == str(DIVISOR)
        return cls(recipe, data_dir, device)

    def batches(self, split: str) -> NumberBatches:
        return NumberBatches(self.recipe.data.split(split), self.recipe.data.batch_size)

    def loss(self, batch: NumberBatch) -> tuple[Tensor, int]:
        return self.model.output_layer.loss(self.model(batch.digits), batch.targets), len(batch.targets)

    def evaluate(self, batches: NumberBatches) -> Accuracy:
        layer = self.model.output_layer
        turns = evaluate_batches(self.model, batches, lambda batch: layer.log_prob(self.model(batch.digits)).argmax(-1))
        right = torch.cat([found == batch.targets for batch, found in turns])
        return Accuracy(float(right.float().mean()))

    def measure(self, split: str) -> Measurement:
        return Measurement({"accuracy": self.evaluate(self.batches(split)).value})

    @classmethod
    def measure_bundle(
        cls, model: RemainderModel, recipe: RemainderRecipe, split: str, data_dir: Path
    ) -> dict[str, float]:
        numbers = recipe.data.split(split)
        right = [found == number % DIVISOR for number, found in zip(numbers, model.remainders(numbers), strict=True)]
        return {"accuracy": sum(right) / len(right)}
