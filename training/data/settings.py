"""What recipes say about data."""

from pathlib import PurePath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from training.data.tokenization import WordStyle
from training.settings import PositiveInt, Settings

__all__ = [
    "DataSettings",
    "GenerationSettings",
    "ImageSettings",
    "LabelledSettings",
    "PairSettings",
    "Split",
    "SplitFiles",
]

Split = Literal["train", "dev", "test"]


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

    def dataset(self, split: str) -> str:
        """What a number measured on that split says it was measured on."""
        del split
        return self.corpus


FileName = Annotated[str, Field(min_length=1)]


class SplitFiles(Settings):
    """A user's own files: two columns with a tab between them, in UTF-8. Relative paths start at `--data-dir`."""

    train: FileName
    """What to learn from."""
    dev: FileName | None = None
    """What to select a model by; held out of `train` where there is no such file."""
    test: FileName | None = None
    """What to report quality on; held out of `train` where there is no such file."""

    def held_out(self) -> list[Split]:
        """Splits that are part of the training file."""
        splits: tuple[Split, ...] = ("dev", "test")
        return [split for split in splits if getattr(self, split) is None]


class _CorpusOrFiles(Settings):
    """Where records come from."""

    corpus: str | None = None
    """A name of the corpus registry (`softserve-train corpora` lists them)."""
    files: SplitFiles | None = None
    """Own files instead of a corpus."""
    limit: PositiveInt | None = None
    """Use only the first records of each split, for trying things out."""

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.corpus is None) == (self.files is None):
            raise ValueError("give either corpus, a name of the registry, or files, your own")
        return self

    def dataset(self, split: str) -> str:
        """What a number measured on that split says it was measured on."""
        if self.files is None:
            assert self.corpus is not None
            return self.corpus
        own: str | None = getattr(self.files, split, None)
        return f"{PurePath(self.files.train).name}, held out" if own is None else PurePath(own).name


class PairSettings(_CorpusOrFiles):
    """What a translation model is trained on."""

    source: str
    """Code of the language to translate from (ISO 639-1), which is also the name of the corpus's column."""
    target: str
    """Code of the language to translate into."""
    vocab_size: Annotated[int, Field(ge=258)] = 8000
    """Tokens of the joint byte-pair encoding; 258 of them are bytes, `<unk>` and `</s>`."""
    batch_tokens: PositiveInt = 4096
    """Positions a batch and side, padding included."""
    max_tokens: PositiveInt = 256
    """Longer training pairs are left out."""


class LabelledSettings(_CorpusOrFiles):
    """What a classifier is trained on."""

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


class GenerationSettings(_CorpusOrFiles):
    """What a text generator is trained on."""

    max_tokens: Annotated[int, Field(ge=8)] = 128
    """Longest text that is read, `[CLS]` and `[SEP]` included. Of longer ones the head is read in training; the service
    refuses them unless it is asked to cut them so."""
    max_output_tokens: Annotated[int, Field(ge=4)] = 32
    """Longest text that is written, its end not counted; training pairs with longer ones are left out."""
    batch_tokens: PositiveInt = 1024
    """Positions a batch and side, padding included."""


class ImageSettings(Settings):
    """What a classifier of images is trained on."""

    corpus: str
    """A name of the corpus registry (`softserve-train corpora` lists them)."""
    augment: bool = True
    """Whether training images are moved and mirrored at random."""
    batch_images: PositiveInt = 128
    """Images a batch."""
    limit: PositiveInt | None = None
    """Use only the first images of each split, for trying things out."""

    def dataset(self, split: str) -> str:
        """What a number measured on that split says it was measured on."""
        del split
        return self.corpus
