"""What recipes say about data."""

from typing import Annotated, Literal

from pydantic import Field

from training.data.tokenization import WordStyle
from training.settings import PositiveInt, Settings

__all__ = ["DataSettings", "PairSettings"]


class DataSettings(Settings):
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


class PairSettings(Settings):
    """What a translation model is trained on."""

    corpus: str
    """A name of the corpus registry (`softserve-train corpora` lists them)."""
    source: str
    """The corpus column to translate from, named by its language's code (ISO 639-1)."""
    target: str
    """The corpus column to translate into."""
    vocab_size: Annotated[int, Field(ge=258)] = 8000
    """Tokens of the joint byte-pair encoding; 258 of them are bytes, `<unk>` and `</s>`."""
    batch_tokens: PositiveInt = 4096
    """Positions a batch and side, padding included."""
    max_tokens: PositiveInt = 256
    """Longer training pairs are left out."""
    limit: PositiveInt | None = None
    """Use only the first pairs of each split, for trying things out."""
