"""The recipe of a text generator."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from training.data.settings import CorpusOrFiles
from training.networks.pretrained import weight_sources
from training.recipe import Recipe
from training.settings import PositiveInt
from training.tasks.encoders import EncoderSettings

__all__ = ["GenerationRecipe", "GenerationSettings"]


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


class GenerationRecipe(Recipe):
    """A text generator."""

    task: Literal["text-generation"]
    data: GenerationSettings
    network: EncoderSettings = EncoderSettings()

    def sources(self) -> list[dict[str, str]]:
        return [*super().sources(), *weight_sources(self.network.pretrained)]
