"""Recipes describe runs. Every field is checked when a recipe is made."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, TypeGuard

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from models.bundle.manifest import BundleName
from training.data.settings import DataSection
from training.recipe.output_layer import OutputLayerSettings
from training.recipe.overrides import set_field
from training.settings import Fraction, PositiveInt, QuantizationName, Settings
from training.softmax.mixture import parse_kernels

__all__ = [
    "LoopSettings",
    "Range",
    "Recipe",
    "RecipeError",
    "TuneSettings",
    "Value",
    "is_number",
]


class RecipeError(ValueError):
    """A recipe that cannot be read; the text names every field that is wrong."""


class LoopSettings(Settings):
    """How the model is trained."""

    epochs: PositiveInt = 10
    """Maximum number of epochs."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    """Peak learning rate of AdamW."""
    adam_beta2: Annotated[float, Field(gt=0, lt=1)] = 0.999
    """Decay of the second moment; 0.98 is usual for Transformers."""
    schedule: Literal["cosine", "inverse-sqrt"] = "cosine"
    """How the learning rate falls after the warm-up: `cosine` over all epochs, `inverse-sqrt` independently of their
    number."""
    schedule_epochs: PositiveInt | None = None
    """Epochs over which cosine decay falls, then the learning rate stays; `epochs` without it. A run that is continued
    with more epochs gets its first number of epochs here."""
    max_steps: PositiveInt | None = None
    """Maximum number of updates, over all epochs; the last one is followed by an evaluation."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """Minutes that training and evaluations take at most, over all sessions. Warm-up and cosine decay go by the
    fraction of the time that is used where that is more than the fraction of the updates: the learning rate has fallen
    to its end when the time has passed, however fast the machine is. Two runs are then not equal."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay (Loshchilov and Hutter 2019) of matrices, but not of embeddings, norms and biases."""
    warmup_steps: Annotated[int, Field(ge=0)] = 200
    """Steps in which the learning rate rises linearly."""
    equal_weights_steps: Annotated[int, Field(ge=0)] = 0
    """Steps at first in which the weights of a mixture's components stay equal, so that all components learn."""
    final_learning_rate: Fraction = 0.01
    """What cosine decay ends at, as a fraction of the peak."""
    average: PositiveInt = 1
    """Evaluated and kept is the mean of the weights of that many snapshots (Vaswani et al. 2017, section 6.1)."""
    snapshot_steps: PositiveInt = 500
    """Steps between snapshots, where `average` is more than 1."""
    accumulate: PositiveInt = 1
    """Batches whose gradients make one update, that of the mean loss over all their targets; a step is an update."""
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients of a larger norm are scaled down to it."""
    evaluate_steps: PositiveInt | None = None
    """Updates between evaluations inside an epoch, in addition to the one at its end."""
    patience: PositiveInt = 3
    """Evaluations without improvement on the development set before training stops."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto` is bfloat16 autocast where the processor computes it natively, else float32; `float16` needs a GPU."""
    compile: bool = False
    """Whether `torch.compile` compiles the network; on a CPU it needs a C++ compiler."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Processes that make batches while the model computes; the training process itself makes them with 0."""
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 5.0
    """Minutes between checkpoints inside an epoch; the end of an epoch always makes one."""

    def _ineffective(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.schedule == "inverse-sqrt":
            yield ("final_learning_rate", "schedule_epochs"), "with schedule: inverse-sqrt"
        if self.average == 1:
            yield ("snapshot_steps",), "with average: 1"


class ExportSettings(Settings):
    """The bundle that is exported."""

    version: PositiveInt = 1
    """Version directory of the bundle."""
    description: str = ""
    """One sentence for the model list."""
    licence: str = "unstated"
    """Licence of the trained model."""
    max_tokens: PositiveInt = 1000
    """Longest text the service accepts, in tokens."""
    max_pixels: PositiveInt = 16_000_000
    """Largest image the service accepts, height times width."""
    quantization: QuantizationName = "none"
    """`int8` stores and multiplies matrices as int8; its loss in quality is measured, and so it is with `none`. `int4`,
    of causal language models, stores and multiplies them in 4 bits."""
    also_test_on: list[str] = Field(default_factory=list)
    """Other corpora of the registry, with the same columns, whose test splits the bundle is measured on too."""
    torchscript: bool = False
    """Whether a TorchScript file is written in addition to the ONNX graphs."""


Value = bool | int | float | str | None
"""A value of a field in a search."""


def is_number(value: Value) -> TypeGuard[int | float]:
    """Return whether a value is a number; `true` and `false` are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class Range(Settings):
    """Numbers between two bounds, both included."""

    low: float
    """Smallest number."""
    high: float
    """Largest number."""
    log: bool = False
    """Whether numbers are drawn evenly on a logarithmic scale."""
    integer: bool = False
    """Whether only whole numbers are drawn."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, not {self.low:g} and {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"low must be positive on a logarithmic scale, not {self.low:g}")
        if self.integer and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f"low and high must be whole with integer: true, not {self.low:g} and {self.high:g}")
        return self

    def examples(self) -> list[Value]:
        """Return numbers to try a field with: both ends, and a fraction where the range has any."""
        if self.integer:
            return [int(self.low), int(self.high)]
        return [self.low, self.low + (self.high - self.low) / math.pi, self.high]


Choices = Annotated[
    Annotated[Range, Tag("range")] | Annotated[list[Value], Tag("values"), Field(min_length=1)],
    Discriminator(lambda given: "range" if isinstance(given, dict | Range) else "values"),
]


class TuneSettings(Settings):
    """A search for hyperparameters by the metric on the development set (`softserve-train tune`)."""

    parameters: Annotated[dict[str, Choices], Field(min_length=1)]
    """The dotted path of a field, such as `output_layer.kernels.0.p`, to its values, or to a range of numbers."""
    sampler: Literal["grid", "tpe"] = "grid"
    """`grid` tries all combinations of values; `tpe` looks where earlier trials did well (Bergstra et al. 2011)."""
    trials: PositiveInt | None = None
    """Trials at most. Without it a grid is searched completely; `tpe` needs it."""
    pruning: Literal["median", "none"] = "none"
    """`median` ends a trial that after some evaluation is worse than the median of earlier trials was after as many."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for path, choices in self.parameters.items():
            if isinstance(choices, list) and len(set(choices)) < len(choices):
                raise ValueError(f"parameters: {path} has a value twice")
            if isinstance(choices, Range) and self.sampler == "grid":
                raise ValueError(f"parameters: {path} is a range; list its values for a grid, or take `sampler: tpe`")
            outer = [other for other in self.parameters if path.startswith(f"{other}.")]
            if outer:
                raise ValueError(f"parameters: {path} lies within {outer[0]}; only one of them can be searched")
        if self.sampler == "tpe" and self.trials is None:
            raise ValueError("trials: `sampler: tpe` needs a number of trials")
        return self


class Recipe(Settings):
    """One experiment. The class of each task has its own fields in addition to these, among them `data`."""

    if TYPE_CHECKING:  # a field of each task's class; here it would come first in every file
        data: DataSection

    other_components: ClassVar[bool] = False
    """Whether the output layer may have components that read the words before a position, or no context."""
    source_components: ClassVar[bool] = False
    """Whether the output layer may have components that read the source of a text."""
    margins: ClassVar[bool] = False
    """Whether the loss may have margins, which are for classifiers."""

    name: BundleName
    """Name of the run and of the bundle."""
    task: str
    """The task that the model is trained for."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Seed of everything random."""
    output_layer: OutputLayerSettings = OutputLayerSettings()
    loop: LoopSettings = LoopSettings()
    export: ExportSettings = ExportSettings()
    tune: TuneSettings | None = None
    """The fields that `softserve-train tune` searches, and how."""

    @model_validator(mode="after")
    def _has_components(self) -> Self:
        for component in self.output_layer.other_components():
            if component.reads_source and not self.source_components:
                raise ValueError(f"output_layer.kernels: {component.name} is for translation, not {self.task}")
            if not component.reads_source and not self.other_components:
                raise ValueError(
                    "output_layer.kernels: components that are not kernels are for language-model, not "
                    f"{self.task}: {component.name}"
                )
        return self

    @model_validator(mode="after")
    def _may_have_margins(self) -> Self:
        if not self.margins and (margin := self.output_layer.margin):
            raise ValueError(f"output_layer.{margin}: margins are for classifiers, not {self.task}")
        return self

    @model_validator(mode="after")
    def _tunable(self) -> Self:
        """Try every value that is listed, and examples of every range."""
        for path, choices in self.tune.parameters.items() if self.tune is not None else ():
            for value in choices if isinstance(choices, list) else choices.examples():
                try:
                    self.with_values({path: value})
                except ValueError as error:
                    raise ValueError(f"tune.parameters: {error}") from error
        return self

    def ineffective_fields(self) -> Iterator[str]:
        sections = ((name, getattr(self, name)) for name in type(self).model_fields)
        for name, section in sections:
            if isinstance(section, Settings):
                yield from (f"{name}.{line}" for line in section.ineffective_fields())
        if self.loop.equal_weights_steps and len(parse_kernels(self.output_layer.kernels)) == 1:
            yield "loop.equal_weights_steps has no effect on a single kernel"

    def searchable(self) -> list[str]:
        """Return the fields and sections that a search may change.

        Other fields change the data that the metric is measured on, or have no effect on it.
        """
        return ["seed", *(f"data.{name}" for name in self.data.searchable), "network", "output_layer", "loop"]

    def sources(self) -> list[dict[str, str]]:
        """Return name, homepage and licence of the data, and of the weights that training starts from."""
        return self.data.sources()

    def with_values(self, values: Mapping[str, Value]) -> Self:
        """Return the recipe with other values at dotted paths, and without `tune`.

        Raises `ValueError` for a path that does not exist or may not be searched, and for a value out of range.
        """
        content = self.model_dump(exclude={"tune"})
        for path, value in values.items():
            if not any(f"{path}.".startswith(f"{root}.") for root in self.searchable()):
                raise ValueError(f"{path} cannot be searched; fields that can: {', '.join(self.searchable())}")
            set_field(content, path, value)
        try:
            return self.model_validate(content)
        except ValidationError as error:
            given = ", ".join(f"{path} = {value!r}" for path, value in values.items())
            wrong = "; ".join(str(each["msg"]).removeprefix("Value error, ") for each in error.errors())
            raise ValueError(f"{given}: {wrong}") from error
