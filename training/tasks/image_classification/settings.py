"""The recipe of an image classifier."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from training.data.image_corpora import ImageCorpus, get_image_corpus
from training.data.settings import CorpusOrFiles
from training.networks.pretrained import weight_sources
from training.settings import Fraction, PositiveInt, Settings
from training.tasks.classification import ClassifierRecipe

__all__ = ["ImageClassificationRecipe", "ImageEncoderSettings", "ImageSettings"]


class ImageSettings(CorpusOrFiles):
    """The training data of a classifier of images."""

    searchable = ("batch_images",)
    held_out_unit: ClassVar[str] = "images"

    image_size: Annotated[int, Field(ge=8, le=1024)] | None = None
    """Height and width that own images are resized to; the images of a corpus have their size."""
    augment: bool = True
    """Whether training images are moved and mirrored at random."""
    batch_images: PositiveInt = 128
    """Images a batch."""

    @staticmethod
    def registered(name: str) -> ImageCorpus:
        return get_image_corpus(name)

    @model_validator(mode="after")
    def _size_of_own_files(self) -> Self:
        if self.files is not None and self.image_size is None:
            raise ValueError("image_size: own files need the height and width that images are resized to")
        if self.files is None and self.image_size is not None:
            raise ValueError(f"image_size: the images of corpus {self.corpus!r} have their size; leave it out")
        return self


class ImageEncoderSettings(Settings):
    """The encoder that computes an image's vector."""

    encoder: Literal["efficientnet-lite0", "densenet"] = "densenet"
    """`efficientnet-lite0`, for which there are ImageNet weights, or `densenet` for small images."""
    pretrained: str | None = None
    """Weights of EfficientNet-Lite0: a name that `training.networks.pretrained` knows, or a file."""
    scale: PositiveInt = 1
    """How many times images are enlarged first."""
    growth: PositiveInt = 12
    """Channels that each layer of a DenseNet adds."""
    layers: Annotated[list[PositiveInt], Field(min_length=1, max_length=5)] = Field(default_factory=lambda: [6, 6, 6])
    """Layers of each of a DenseNet's blocks."""
    dropout: Fraction = 0.0
    """On the image's vector."""
    drop_path: Fraction = 0.0
    """How often an EfficientNet's residual blocks are left out in training: from 0 for the first up to nearly this."""

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        if self.pretrained is not None and self.encoder != "efficientnet-lite0":
            raise ValueError(f"pretrained: there are no weights of {self.encoder}")
        return self

    def _ineffective(self) -> Iterator[tuple[tuple[str, ...], str]]:
        yield ("growth", "layers") if self.encoder != "densenet" else ("drop_path",), f"with encoder: {self.encoder}"


class ImageClassificationRecipe(ClassifierRecipe):
    """A classifier of images."""

    task: Literal["image-classification"]
    data: ImageSettings
    network: ImageEncoderSettings = ImageEncoderSettings()

    def sources(self) -> list[dict[str, str]]:
        return [*super().sources(), *weight_sources(self.network.pretrained)]
