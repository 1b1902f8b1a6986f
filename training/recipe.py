"""Recipes: the YAML files that say what a run does. Every field is checked when the file is read."""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from training.data.tokenization import WordStyle
from training.softmax.mixture import parse_kernels

__all__ = [
    "DataSettings",
    "ExportSettings",
    "LoopSettings",
    "NetworkSettings",
    "OutputLayerSettings",
    "Recipe",
    "RecipeError",
    "load_recipe",
]

Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveInt = Annotated[int, Field(ge=1)]


class RecipeError(ValueError):
    """A recipe that cannot be read; the text names every field that is wrong."""


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class DataSettings(_Settings):
    """What the model is trained on."""

    corpus: str
    """A name of the corpus registry (`softserve-train corpora` lists them)."""
    column: str = "text"
    """The corpus column that holds the text."""
    style: WordStyle = "words"
    """`words` splits punctuation off; `whitespace` for a corpus that is tokenized already."""
    lowercase: bool = True
    """Whether the vocabulary ignores case."""
    min_count: PositiveInt = 1
    """Rarer words are `<unk>`."""
    deduplicate: bool = False
    """Whether repeated training sentences count once (development and test data are never touched)."""
    context: Literal["sentence", "stream"] = "sentence"
    """`sentence`: each starts afresh. `stream`: the state carries over from line to line, as PTB is read."""
    batch_tokens: PositiveInt = 2048
    """Positions a batch, padding included."""
    stream_steps: PositiveInt = 35
    """Steps of back-propagation through time with `context: stream`."""
    limit: PositiveInt | None = None
    """Use only the first sentences of each split, for trying things out."""


class NetworkSettings(_Settings):
    """The LSTM that computes the context vectors."""

    hidden_size: PositiveInt = 512
    """Size of word vectors, states and context vectors."""
    num_layers: PositiveInt = 2
    """Stacked LSTM layers."""
    dropout: Fraction = 0.1
    """On the word vectors, between layers and on the context vectors."""


class OutputLayerSettings(_Settings):
    """The softmax layer; see `training.softmax.GeneralizedSoftmax`."""

    kernels: str | list[str | dict[str, Any]] = "lin"
    """Such as `lin`, `3*lin, log`, or a list of mappings with `name` and hyperparameters."""
    variance_penalty: Annotated[float, Field(ge=0)] = 0.0
    """rho of the mixture regularizer (kernel paper, eq. 14)."""

    @field_validator("kernels")
    @classmethod
    def _known_kernels(cls, value: str | list[str | dict[str, Any]]) -> str | list[str | dict[str, Any]]:
        from training.softmax.kernels import build_kernel

        for spec in parse_kernels(value):
            build_kernel(**spec)
        return value


class LoopSettings(_Settings):
    """How the model is trained."""

    epochs: PositiveInt = 10
    """Passes over the training data at most."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-3
    """Peak learning rate of AdamW."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay (Loshchilov and Hutter 2019)."""
    warmup_steps: Annotated[int, Field(ge=0)] = 200
    """Steps in which the learning rate rises linearly."""
    final_learning_rate: Fraction = 0.01
    """What cosine decay ends at, as a fraction of the peak."""
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients of a larger norm are scaled down to it."""
    patience: PositiveInt = 3
    """Evaluations without improvement on the development set before training stops."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto` is bfloat16 autocast where the processor computes it natively, else float32."""
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 5.0
    """Minutes between checkpoints inside an epoch; the end of an epoch always makes one."""


class ExportSettings(_Settings):
    """What goes into the bundle beside the graphs."""

    version: PositiveInt = 1
    """Version directory of the bundle."""
    description: str = ""
    """One sentence for the model list."""
    licence: str = "unstated"
    """Licence of the trained model."""
    max_tokens: PositiveInt = 1000
    """Longest text the service accepts, in tokens."""
    quantization: Literal["none", "int8"] = "none"
    """`int8` stores and multiplies matrices as int8 (dynamic quantization); its loss in quality is measured."""
    torchscript: bool = True
    """Whether a TorchScript file is written beside the ONNX graphs."""


class Recipe(_Settings):
    """One experiment."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    """Name of the run and of the bundle."""
    task: Literal["language-model"]
    """What is trained."""
    seed: int = 1
    """Seed of everything random."""
    data: DataSettings
    network: NetworkSettings = NetworkSettings()
    output_layer: OutputLayerSettings = OutputLayerSettings()
    loop: LoopSettings = LoopSettings()
    export: ExportSettings = ExportSettings()


def load_recipe(path: Path) -> Recipe:
    """Reads and checks a recipe; raises `RecipeError` naming every wrong field, `FileNotFoundError` for no file."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not YAML: {error}") from error
    except IsADirectoryError as error:
        raise RecipeError(f"{path} is a directory, not a recipe") from error
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        wrong = [f"  {'.'.join(map(str, e['loc'])) or 'recipe'}: {e['msg']}" for e in error.errors()]
        raise RecipeError(f"{path} is not a valid recipe:\n" + "\n".join(wrong)) from error
