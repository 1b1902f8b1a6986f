"""Tests of corpora of images."""

import hashlib
import io
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

from training.data.corpora import download
from training.data.corpus import CorpusFile, Source
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


def test_images_do_not_depend_on_the_order_in_the_files(
    shapes_corpus: ImageCorpus, tiny_data_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "shapes").mkdir()
    test = pyarrow.parquet.read_table(tiny_data_dir / "shapes" / "test.parquet")
    reversed_rows = test.take(list(range(len(test)))[::-1])
    pyarrow.parquet.write_table(reversed_rows, tmp_path / "shapes" / "test.parquet")
    pixels, classes = shapes_corpus.images("test", tiny_data_dir)
    checksum = f"sha256:{hashlib.sha256(pixels.tobytes() + classes.astype('<i8').tobytes()).hexdigest()}"
    splits = {"test": (CorpusFile(name="test.parquet", checksums=()),)}
    corpus = replace(shapes_corpus, splits=splits, checksums={"test": checksum})
    for found, expected in zip(corpus.images("test", tmp_path), (pixels, classes), strict=True):
        np.testing.assert_array_equal(found, expected)
    pyarrow.parquet.write_table(test.slice(1), tmp_path / "shapes" / "test.parquet")
    with pytest.raises(ValueError, match="the test images are not those of corpus 'shapes'"):
        corpus.images("test", tmp_path)


def _cifar100(path: Path, train: NDArray[np.uint8], test: NDArray[np.uint8]) -> None:
    """Write an archive like that of CIFAR-100, of records `[N, 3074]`."""
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"fine_label_names.txt": b"apple\nbee\n\n", "train.bin": train, "test.bin": test}.items():
            entry = tarfile.TarInfo(f"cifar-100-binary/{name}")
            entry.size = len(content) if isinstance(content, bytes) else content.nbytes
            archive.addfile(entry, io.BytesIO(bytes(content)))


def test_cifar100_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = np.random.default_rng(0).integers(256, size=(13, 3074), dtype=np.uint8)
    records[:, 1] %= 2
    archive = tmp_path / "www" / "cifar-100-binary.tar.gz"
    _cifar100(archive, records[:10], records[10:])
    source = Source(url=archive.as_uri(), checksum=f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}")
    small = replace(
        get_image_corpus("cifar100"),
        sources=(source,),
        checksums={},
        classes=CorpusFile(name="classes.txt", checksums=()),
    )
    monkeypatch.setitem(IMAGE_CORPORA, "cifar100", small)  # type: ignore[arg-type]
    assert download("cifar100", tmp_path / "data") == tmp_path / "data" / "cifar100"
    assert small.labels(tmp_path / "data") == ["apple", "bee"]
    parts = [small.images(split, tmp_path / "data") for split in ("train", "dev", "test")]
    assert [len(pixels) for pixels, _ in parts] == [9, 1, 3]
    found = {
        (pixels.transpose(2, 0, 1).tobytes(), number)
        for part in parts
        for pixels, number in zip(part[0], part[1].tolist(), strict=True)
    }
    assert found == {(record[2:].tobytes(), int(record[1])) for record in records}


def test_other_images_than_those_of_cifar100_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "www" / "cifar-100-binary.tar.gz"
    _cifar100(archive, np.zeros((10, 3074), np.uint8), np.zeros((2, 3074), np.uint8))
    names = CorpusFile(name="classes.txt", checksums=())
    other = replace(get_image_corpus("cifar100"), sources=(Source(url=archive.as_uri()),), classes=names)
    monkeypatch.setitem(IMAGE_CORPORA, "cifar100", other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"gz: the train images are not those of corpus 'cifar100' \(checksum\)"):
        download("cifar100", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_an_unknown_corpus_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="known ones: cifar100"):
        get_image_corpus("cifar10")


@pytest.mark.parametrize("corpus", IMAGE_CORPORA.values(), ids=lambda corpus: corpus.name)
def test_every_corpus_is_described(corpus: ImageCorpus) -> None:
    assert corpus.homepage.startswith("https://")
    assert corpus.licence
    assert corpus.checksums.keys() == corpus.splits.keys()
    checksums = [*corpus.checksums.values(), *(each for file in corpus.all_files() for each in file.checksums)]
    checksums += [source.checksum for source in corpus.sources if source.checksum is not None]
    assert len(checksums) == 4
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", checksum) for checksum in checksums)
