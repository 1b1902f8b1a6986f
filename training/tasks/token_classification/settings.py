"""The recipe of a token classifier."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from training.data.settings import CorpusOrFiles
from training.networks.pretrained import weight_sources
from training.settings import PositiveInt
from training.tasks.classification import ClassifierRecipe
from training.tasks.encoders import EncoderSettings

__all__ = ["Scheme", "TaggedSettings", "TokenClassificationRecipe"]

Scheme = Literal["iob2", "any"]
"""What tags may be: `B-`, `I-` and `O` of IOB2, or any."""

_COLUMNS = {"tokens", "tags"}


class TaggedSettings(CorpusOrFiles):
    """The training data of a token classifier: tagged sentences.

    `files` are JSON Lines with the lists `tokens` and `tags`, or CoNLL columns: a token and its tag on a line, a blank
    line after each sentence. `files.columns` has the lists' own names, or the columns' numbers, of which the first and
    the last one are read without it.
    """

    held_out_unit: ClassVar[str] = "sentences"
    separated_by_blank_lines: ClassVar[bool] = True

    scheme: Scheme = "iob2"
    """`iob2` refuses tags other than `O`, `B-TYPE`, and `I-TYPE` after a tag of the same type; `any` accepts all."""
    max_tokens: Annotated[int, Field(ge=8)] = 128
    """Longest sentence in tokens, `[CLS]` and `[SEP]` included. Words after it are not trained on, and count as `O` in
    metrics; the service reads longer texts in windows."""
    batch_tokens: PositiveInt = 1024
    """Positions a batch, padding included."""

    @model_validator(mode="after")
    def _own_files(self) -> Self:
        if self.corpus is not None:
            raise ValueError(f"corpus: no corpus of the registry has tags, {self.corpus!r} neither; give files")
        assert self.files is not None
        if unknown := sorted(self.files.columns.keys() - _COLUMNS):
            raise ValueError(f"files.columns: there is no {unknown[0]!r} here, but tokens and tags")
        return self


class TokenClassificationRecipe(ClassifierRecipe):
    """A classifier of tokens."""

    task: Literal["token-classification"]
    data: TaggedSettings
    network: EncoderSettings = EncoderSettings()

    def sources(self) -> list[dict[str, str]]:
        return [*super().sources(), *weight_sources(self.network.pretrained)]
