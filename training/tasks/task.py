"""A task: everything that the loop, the search, the exporter and the command line ask for."""

import abc
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from training.bundling.task_export import TaskExport
from training.data.batching import Batches
from training.data.identity import Record
from training.data.inspection import Inspected
from training.data.report import Expected, Texts
from training.networks.softmax_model import SoftmaxModel
from training.recipe import Recipe
from training.recipe.own.document import Planned, Wishes
from training.run.distributed import ALONE, Group
from training.run.paths import RunPaths
from training.tasks.examples import Examples, Measurement

__all__ = ["Quality", "Refitted", "RunFiles", "Task"]

BatchT = TypeVar("BatchT")

RunFiles = Mapping[Path, Callable[[Path], object]]
"""Files of a run directory, each with the function that writes it."""


@dataclass(frozen=True, slots=True)
class Refitted:
    """What `softserve-train calibrate` changes of a finished bundle."""

    fields: Mapping[str, object]
    """Fields of its section."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files by name."""


class Quality(Protocol):
    """The result of an evaluation."""

    @property
    def value(self) -> float:
        """The metric that models are selected by."""
        ...


class Task(abc.ABC, Generic[BatchT]):
    """Data, model, loss, metric and export of a recipe.

    Subclasses are registered by `training.tasks.registry.register`. Class methods need no run; instances belong to one.
    """

    recipe_type: ClassVar[type[Recipe]]
    exporter: ClassVar[type[TaskExport]]
    maximize: ClassVar[bool] = True
    """Whether a larger metric is better."""
    outputs: ClassVar[str]
    """The plural noun for the rows of the output layer, such as `classes`."""
    kind: ClassVar[str | None] = None
    """The name of such models for `softserve-train new`, which makes recipes; None where it makes none."""
    network: ClassVar[str | None] = None
    """The name of its networks, where several tasks train models of one `kind`."""
    default_network: ClassVar[bool] = False
    """Whether recipes of the `kind` are of this task where no `network` is named."""
    single_process: ClassVar[str | None] = None
    """Why several processes cannot train a model of the task together; None if they can."""

    metric: str
    """Name of the metric that models are selected by."""
    recipe: Recipe
    data_dir: Path
    device: torch.device
    model: SoftmaxModel
    group: Group = ALONE
    """The processes that train and evaluate the model together."""

    def __init_subclass__(cls) -> None:
        """Take the methods of an exporter that measures bundles by itself, until version 0.2."""
        super().__init_subclass__()
        exporter = vars(cls).get("exporter")
        for old, new in {"measure": "measure_bundle", "report": "report_bundle"}.items():
            if new not in vars(cls) and (method := getattr(exporter, old, None)) is not None:
                text = f"{exporter}.{old} is now {new}, a class method of the task"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
                setattr(cls, new, staticmethod(method))

    def __init__(self, recipe: Recipe, data_dir: Path, device: torch.device, model: SoftmaxModel) -> None:
        """Move a model, which has fresh parameters, to the device."""
        self.recipe, self.data_dir, self.device = recipe, data_dir, device
        self.model = model.to(device)

    @classmethod
    def metric_of(cls, recipe: Any) -> str:
        """Return the name of the metric that models of a recipe are selected by."""
        del recipe
        return cls.metric

    @classmethod
    def plan(cls, files: Sequence[Inspected], wishes: Wishes) -> Planned:
        """Return a recipe that fits a user's files; raises `ValueError` where none can be made of them."""
        raise NotImplementedError

    @classmethod
    @abc.abstractmethod
    def prepare(cls, recipe: Any, run: RunPaths, data_dir: Path) -> RunFiles:
        """Return the files that a run directory keeps, such as the tokenizer.

        Reads the training data, and raises `ValueError` where a run could not succeed on it.
        """

    @classmethod
    @abc.abstractmethod
    def open(cls, recipe: Any, run: RunPaths, data_dir: Path, device: torch.device) -> Self:
        """Return the task of a recipe with fresh parameters and the files of its run directory."""

    def initialize(self) -> str | None:
        """Load the parameters that a new run starts from, such as those of a pretrained encoder.

        May return a line for the progress output.
        """
        return None

    @classmethod
    def records(cls, recipe: Any, split: str, data_dir: Path) -> Iterable[Record] | None:
        """Return the records of a split, by which a run notices that its data changed; None where it cannot change.

        Raises the errors of reading the data.
        """
        del recipe, split, data_dir
        return None

    @classmethod
    def renewed_files(cls, recipe: Any, run: RunPaths, data_dir: Path) -> RunFiles:
        """Return the files of a run that other data replace; tokenizers and vocabularies stay.

        Raises `ValueError` where a run could not continue with the data.
        """
        del recipe, run, data_dir
        return {}

    def adopt(self, weights: Mapping[str, Tensor], before: RunPaths) -> None:
        """Load the weights of a run on other data; its files, such as its labels, are in the directory `before`.

        Raises `ValueError` where they do not fit.
        """
        del before
        self.model.load_state_dict(weights)

    @abc.abstractmethod
    def batches(self, split: str) -> Batches[BatchT]:
        """Return the batches of a split; those of `train` are shuffled."""

    @classmethod
    def expected(cls, recipe: Any) -> Expected | None:
        """Return how the texts of a recipe should be, for the data report; None for a task without texts."""
        del recipe
        return None

    @classmethod
    def texts(cls, recipe: Any, split: str, data_dir: Path, most: int) -> Texts:
        """Return the first texts of a split, at most `most`, for the data report; raises the errors of reading them."""
        raise NotImplementedError

    def token_count(self, split: str) -> int | None:
        """Return the number of tokens of a split, None where its records have none."""
        del split
        return None

    def baselines(self) -> Mapping[str, Callable[[str], float]]:
        """Return simple methods by their names, each a function from a split to the metric that it reaches there.

        They take seconds. What learns from the training split does so when this is called. They may change the
        parameters, which training initializes or loads afterwards.
        """
        return {}

    @abc.abstractmethod
    def loss(self, batch: BatchT) -> tuple[Tensor, int]:
        """Return the summed loss over the batch's targets, and their number."""

    @abc.abstractmethod
    def evaluate(self, batches: Any) -> Quality:
        """Return the metric on a split, dropout off; leaves the training state as it was.

        All processes of the `group` call it, and share the work where `training.tasks.evaluation` does it.
        """

    @abc.abstractmethod
    def measure(self, split: str) -> Measurement:
        """Return all metrics on a split, and the statistics of its examples where the task has them."""

    def report(self, split: str) -> list[str]:
        """Return the lines that `softserve-train evaluate` prints."""
        return [f"{metric} {value:.4f}" for metric, value in self.measure(split).metrics.items()]

    @classmethod
    @abc.abstractmethod
    def measure_bundle(cls, model: Any, recipe: Any, split: str, data_dir: Path) -> dict[str, float]:
        """Return the finite metrics of a loaded bundle on a split, the most important first."""

    @classmethod
    def refitted(cls, model: Any, recipe: Any, data_dir: Path, texts: Path | None) -> Refitted:
        """Return what `softserve-train calibrate` fits again of a finished bundle.

        They are fitted on the validation split of the recipe, None of an imported bundle, or on the texts of a file.
        Empty for a task without such fields. Raises `ValueError` where there are no texts, or too few.
        """
        del model, recipe, data_dir, texts
        return Refitted({})

    @classmethod
    def bundle_examples(cls, model: Any, recipe: Any, split: str, data_dir: Path) -> Examples | None:
        """Return what each example of a split adds to the first metric of a loaded bundle, in the order of `records`.

        None where the metric is no function of sums over examples.
        """
        del model, recipe, split, data_dir
        return None

    @classmethod
    def report_bundle(cls, model: Any, recipe: Any, split: str, data_dir: Path) -> list[str]:
        """Return the lines that `softserve-train evaluate` prints for a bundle."""
        values = cls.measure_bundle(model, recipe, split, data_dir)
        return [f"{metric} {value:.4f}" for metric, value in values.items()]

    def state_dict(self) -> dict[str, Any]:
        """Return the state in addition to the model's that a run needs to resume exactly."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`."""
        assert not state
