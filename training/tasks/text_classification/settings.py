"""The recipe of a text classifier."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from training.data.settings import CorpusOrFiles
from training.networks.pretrained import weight_sources
from training.networks.text_classifier import Pooling
from training.settings import Fraction, PositiveInt, Settings
from training.tasks.classification import ClassifierRecipe
from training.tasks.encoders import EncoderSettings

__all__ = ["ClassificationRecipe", "LabelledSettings", "TextAugmentation", "TextEncoderSettings"]


class TextAugmentation(Settings):
    """Changed and additional training texts, drawn anew for each epoch."""

    typing_errors: Fraction = 0.0
    """Probability that one word in five of a text has a typing error."""
    out_of_scope_copies: PositiveInt = 1
    """How often each of the corpus's out-of-scope texts is in an epoch."""
    noise: Annotated[int, Field(ge=0)] = 0
    """Out-of-scope texts of random letters, emojis and punctuation, and the empty text."""
    other_languages: Annotated[int, Field(ge=0)] = 0
    """Out-of-scope texts in languages other than English, from the corpus `udhr`."""


class LabelledSettings(CorpusOrFiles):
    """The training data of a classifier of texts."""

    held_out_unit: ClassVar[str] = "texts"

    multi_label: bool = False
    """Whether a text may have several labels, separated by commas."""
    out_of_scope: bool = False
    """Whether out-of-scope texts are trained on, as a class `oos` that is excluded from predictions."""
    augment: TextAugmentation | None = None
    """Changed training texts, and additional out-of-scope texts."""
    max_tokens: Annotated[int, Field(ge=8)] = 64
    """Longest text that is read, `[CLS]` and `[SEP]` included. Longer ones keep their head and tail in training; the
    service refuses them unless it is asked to cut them so."""
    batch_tokens: PositiveInt = 1024
    """Positions a batch, padding included."""

    @property
    def limited(self) -> bool:
        """Return whether a limit may leave classes without a training text; their other texts count as errors."""
        return self.limit_of("train") is not None

    @model_validator(mode="after")
    def _scope(self) -> Self:
        added = self.augment is not None and (self.augment.noise or self.augment.other_languages)
        if added and not self.out_of_scope:
            raise ValueError("augment: noise and other_languages need out_of_scope: true")
        if self.out_of_scope and self.multi_label:
            raise ValueError("out_of_scope: a text of several labels cannot be of none")
        return self


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
