"""The recipe of a text generator."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from training.data.settings import CorpusOrFiles
from training.networks.pretrained import weight_sources
from training.recipe import Recipe
from training.settings import PositiveInt
from training.tasks.encoders import EncoderSettings

__all__ = ["GenerationRecipe", "GenerationSettings", "GeneratorSettings"]


class GenerationSettings(CorpusOrFiles):
    """The training data of a text generator."""

    held_out_unit: ClassVar[str] = "sources"

    max_tokens: Annotated[int, Field(ge=8)] = 128
    """Longest text that is read, `[CLS]` and `[SEP]` included. Of longer ones the head is read in training; the service
    refuses them unless it is asked to cut them so."""
    max_output_tokens: Annotated[int, Field(ge=4)] = 32
    """Longest text that is written, its end not counted; training pairs with longer ones are left out."""
    batch_tokens: PositiveInt = 1024
    """Positions a batch and side, padding included."""


class GeneratorSettings(EncoderSettings):
    """The encoder that generates texts."""

    masked_targets: Annotated[float, Field(gt=0, le=1)] | None = None
    """Fraction of target tokens that are masked and predicted in training (UniLM: 0.7), and outputs are predicted from
    a mask token at the next position; without it each token is predicted from the one before."""


class GenerationRecipe(Recipe):
    """A text generator."""

    task: Literal["text-generation"]
    data: GenerationSettings
    network: GeneratorSettings = GeneratorSettings()

    def sources(self) -> list[dict[str, str]]:
        return [*super().sources(), *weight_sources(self.network.pretrained)]
