"""Tests of corpora of images."""

import re
from pathlib import Path

import numpy as np
import pytest

from training.data.image_corpora import IMAGE_CORPORA, ImageCorpus, get_image_corpus


def test_each_tenth_training_image_is_for_development(shapes_corpus: ImageCorpus, tiny_data_dir: Path) -> None:
    train, _ = shapes_corpus.images("train", tiny_data_dir)
    dev, labels = shapes_corpus.images("dev", tiny_data_dir)
    test, _ = shapes_corpus.images("test", tiny_data_dir)
    assert (len(train), len(dev), len(test)) == (360, 40, 50)
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in dev}
    assert dev.dtype == np.uint8
    assert set(labels.tolist()) <= set(range(4))


def test_other_files_are_refused(shapes_corpus: ImageCorpus, tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"train-0\.parquet \(or \.gz\) is missing; .* comes from https://example.org"
    ):
        shapes_corpus.images("train", tmp_path)
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "test.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="is not the registered file"):
        shapes_corpus.images("test", tmp_path)
    with pytest.raises(ValueError, match="has no split 'oos'"):
        shapes_corpus.images("oos", tmp_path)


def test_an_unknown_corpus_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="known ones: cifar100"):
        get_image_corpus("cifar10")


@pytest.mark.parametrize("corpus", IMAGE_CORPORA.values(), ids=lambda corpus: corpus.name)
def test_every_corpus_is_described(corpus: ImageCorpus) -> None:
    assert corpus.homepage.startswith("https://")
    assert corpus.licence
    files = [corpus.classes, *(file for split in corpus.splits.values() for file in split)]
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", checksum) for file in files for checksum in file.checksums)
