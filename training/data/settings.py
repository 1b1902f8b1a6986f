"""The recipe's section `data`, for each task."""

from pathlib import PurePath
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from training.data.tokenization import WordStyle
from training.settings import PositiveInt, Settings

__all__ = [
    "HELD_OUT_MOST",
    "HELD_OUT_SHARE",
    "CorpusOrFiles",
    "DataSettings",
    "GenerationSettings",
    "ImageSettings",
    "LabelledSettings",
    "PairSettings",
    "Split",
    "SplitFiles",
]

Split = Literal["train", "dev", "test"]


FileName = Annotated[str, Field(min_length=1)]

HELD_OUT_SHARE, HELD_OUT_MOST = 20, 2000
"""One of this many records is held out for a split without a file, but at most this many."""


class SplitFiles(Settings):
    """A user's own files, in UTF-8 where they are text. Relative paths start at `--data-dir`."""

    train: FileName
    """The file or folder to train on."""
    dev: FileName | None = None
    """The file or folder to select a model by; held out of `train` if there is none."""
    test: FileName | None = None
    """The file or folder to report quality on; held out of `train` if there is none."""

    def held_out(self) -> list[Split]:
        """Return the splits that are part of the training file."""
        splits: tuple[Split, ...] = ("dev", "test")
        return [split for split in splits if getattr(self, split) is None]


class CorpusOrFiles(Settings):
    """Data of a registered corpus, or of a user's own files."""

    held_out_unit: ClassVar[str]
    """The plural noun for the distinct records that are divided between splits."""

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
        """Return the name under which a metric of that split is reported."""
        if self.files is None:
            assert self.corpus is not None
            return self.corpus
        own: str | None = getattr(self.files, split, None)
        return f"{PurePath(self.files.train).name}, held out" if own is None else PurePath(own).name

    def held_out_notes(self) -> list[str]:
        """Return a line for each split that is held out of the training file."""
        if self.files is None:
            return []
        return [f"no {split} file: {self._held_out_part(split)}" for split in self.files.held_out()]

    def _held_out_part(self, split: Split) -> str:
        del split
        assert self.files is not None
        share = f"1/{HELD_OUT_SHARE} of the {self.held_out_unit} in {self.files.train}, at most {HELD_OUT_MOST}"
        return f"{share}, are held out for it, always the same"


class DataSettings(CorpusOrFiles):
    """The training data of a language model."""

    held_out_unit: ClassVar[str] = "lines"

    column: str = "text"
    """The corpus column that holds the text; own files have no columns."""
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


class PairSettings(CorpusOrFiles):
    """The training data of a translation model."""

    held_out_unit: ClassVar[str] = "sources"

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


class ImageSettings(CorpusOrFiles):
    """The training data of a classifier of images."""

    held_out_unit: ClassVar[str] = "images"

    image_size: Annotated[int, Field(ge=8, le=1024)] | None = None
    """Height and width that own images are resized to; the images of a corpus have their size."""
    augment: bool = True
    """Whether training images are moved and mirrored at random."""
    batch_images: PositiveInt = 128
    """Images a batch."""

    @model_validator(mode="after")
    def _size_of_own_files(self) -> Self:
        if self.files is not None and self.image_size is None:
            raise ValueError("image_size: own files need the height and width that images are resized to")
        if self.files is None and self.image_size is not None:
            raise ValueError(f"image_size: the images of corpus {self.corpus!r} have their size; leave it out")
        return self
