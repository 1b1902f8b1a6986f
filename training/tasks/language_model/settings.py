"""The recipe of a language model."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from training.data.settings import HELD_OUT_MOST, HELD_OUT_SHARE, CorpusOrFiles, Split
from training.data.tokenization import WordStyle
from training.recipe import Recipe
from training.settings import Fraction, PositiveInt, Settings

__all__ = ["DataSettings", "LanguageModelRecipe", "NetworkSettings", "TextData"]


class TextData(CorpusOrFiles):
    """The texts that a language model is trained on."""

    held_out_unit: ClassVar[str] = "lines"

    column: str = "text"
    """The corpus column that holds the text; own files have no columns."""
    if TYPE_CHECKING:
        deduplicate: bool = False  # a field of the classes, whose place among the others the model cards keep
    context: Literal["sentence", "stream"] = "sentence"
    """Whether each line is a text, or all of them are one."""

    @model_validator(mode="after")
    def _columns_of_a_corpus(self) -> Self:
        if self.files is not None and self.column != "text":
            raise ValueError("column: own files are plain text, without columns")
        return self

    def _held_out_part(self, split: Split) -> str:
        if self.context == "sentence":
            return super()._held_out_part(split)
        assert self.files is not None
        before = " before those of the test split" if split == "dev" and self.files.test is None else ""
        part = f"the last 1/{HELD_OUT_SHARE} of the {self.held_out_unit} in {self.files.train}{before}"
        return f"{part}, at most {HELD_OUT_MOST}, are held out for it, in one piece"


class DataSettings(TextData):
    """The training data of a language model."""

    searchable = ("batch_tokens", "stream_steps")

    style: WordStyle = "words"
    """`words` splits punctuation off; `whitespace` for a corpus that is tokenized already."""
    lowercase: bool = True
    """Whether the vocabulary ignores case."""
    min_count: PositiveInt = 1
    """Rarer words are `<unk>`."""
    deduplicate: bool = False
    """Whether repeated training sentences count once (development and test data are never touched)."""
    context: Literal["sentence", "stream"] = "sentence"
    """`sentence`: each line starts from the initial state. `stream`: the state carries over from line to line, as PTB
    is read."""
    batch_tokens: PositiveInt = 2048
    """Positions a batch, padding included."""
    stream_steps: PositiveInt = 35
    """Steps of back-propagation through time with `context: stream`."""

    def _ineffective(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.context == "sentence":
            yield ("stream_steps",), "with context: sentence"


class NetworkSettings(Settings):
    """The LSTM that computes the context vectors."""

    hidden_size: PositiveInt = 512
    """Size of word vectors, states and context vectors."""
    num_layers: PositiveInt = 2
    """Stacked LSTM layers."""
    dropout: Fraction = 0.1
    """On the word vectors, between layers and on the context vectors."""
    input_dropout: Fraction | None = None
    """On the word vectors, if it is not `dropout`."""
    word_dropout: Fraction = 0.0
    """On words: the vector of a dropped one is 0 wherever a batch reads it (Gal and Ghahramani 2016)."""
    weight_dropout: Fraction = 0.0
    """On the weights from state to state, which all steps of a batch share (DropConnect; Merity et al. 2018)."""
    locked_dropout: bool = False
    """Whether all steps of a batch have the same elements dropped (variational; Gal and Ghahramani 2016)."""
    tied: bool = True
    """Whether the word vectors of the input are those of the output layer."""


class LanguageModelRecipe(Recipe):
    """A recurrent language model."""

    other_components: ClassVar[bool] = True
    task: Literal["language-model"]
    data: DataSettings
    network: NetworkSettings = NetworkSettings()
