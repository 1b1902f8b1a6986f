"""The recipe of a text classifier."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from training.data.settings import CorpusOrFiles
from training.networks.pretrained import weight_sources
from training.networks.text_classifier import Pooling
from training.settings import PositiveInt
from training.tasks.classification import ClassifierRecipe
from training.tasks.encoders import EncoderSettings

__all__ = ["ClassificationRecipe", "LabelledSettings", "TextEncoderSettings"]


class LabelledSettings(CorpusOrFiles):
    """The training data of a classifier of texts."""

    held_out_unit: ClassVar[str] = "texts"

    multi_label: bool = False
    """Whether a text may have several labels, which then have commas between them."""
    out_of_scope: bool = False
    """Whether the corpus's texts of no class make a class of their own, `oos`."""
    train_limit: PositiveInt | None = None
    """Learn from so many of the training texts only, taken evenly from the file, to see how far few texts lead."""
    max_tokens: Annotated[int, Field(ge=8)] = 64
    """Longest text that is read, `[CLS]` and `[SEP]` included. Longer ones keep their head and tail in training; the
    service refuses them unless it is asked to cut them so."""
    batch_tokens: PositiveInt = 1024
    """Positions a batch, padding included."""


class TextEncoderSettings(EncoderSettings):
    """An encoder that computes a text's vector."""

    pooling: Pooling = "mean"
    """The text's vector: the `mean` of its tokens', or that of `[CLS]`, `cls`."""


class ClassificationRecipe(ClassifierRecipe):
    """A classifier of texts."""

    task: Literal["text-classification"]
    data: LabelledSettings
    network: TextEncoderSettings = TextEncoderSettings()

    def sources(self) -> list[dict[str, str]]:
        return [*super().sources(), *weight_sources(self.network.pretrained)]
