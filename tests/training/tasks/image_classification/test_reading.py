"""Tests of images from a corpus or from own files."""

from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.images import LABELS
from training.data.image_corpora import ImageCorpus
from training.data.own_images import OwnImages
from training.data.settings import SplitFiles
from training.tasks.image_classification.reading import image_source, read_images
from training.tasks.image_classification.settings import ImageSettings

OWN = ImageSettings(files=SplitFiles(train="photos"), image_size=32, limit=7)


def test_a_source_is_a_corpus_or_own_files(shapes_corpus: ImageCorpus) -> None:
    assert image_source(ImageSettings(corpus="shapes"), 100) is shapes_corpus
    assert image_source(OWN, 100) == OwnImages(files=SplitFiles(train="photos"), image_size=32, max_pixels=100, limit=7)


def test_a_corpus_is_read_up_to_the_limit(shapes_corpus: ImageCorpus, tiny_data_dir: Path) -> None:
    data = ImageSettings(corpus="shapes", limit=5)
    images, classes = read_images(data, "dev", tiny_data_dir, LABELS, 100)
    whole, all_classes = shapes_corpus.images("dev", tiny_data_dir)
    assert np.array_equal(images, whole[:5])
    assert np.array_equal(classes, all_classes[:5])


def test_other_classes_than_the_models_are_refused(shapes_corpus: ImageCorpus, tiny_data_dir: Path) -> None:
    with pytest.raises(ValueError, match="shapes has other classes than those that the model was trained on"):
        read_images(ImageSettings(corpus="shapes"), "dev", tiny_data_dir, LABELS[::-1], 100)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"files": {"train": "photos"}}, "image_size: own files need the height and width"),
        ({"corpus": "cifar100", "image_size": 64}, "image_size: the images of corpus 'cifar100' have their size"),
        ({"image_size": 64}, "give either corpus"),
    ],
    ids=str,
)
def test_own_images_need_a_size(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ImageSettings.model_validate(fields)
