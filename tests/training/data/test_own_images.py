"""Tests of a user's own images: files that are read, the splits held out of them, and errors."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from models.image.decoding import decoded
from training.data.own_images import OwnImages, holds_images
from training.data.settings import SplitFiles

SPLITS = ("train", "dev", "test")
CLASSES = ("cat", "dog")


def _save(path: Path, number: int, exif: Image.Exif | None = None) -> Path:
    """Write an image of 20 x 12 random pixels."""
    pixels = np.random.default_rng(number).integers(256, size=(12, 20, 3)).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **({} if exif is None else {"exif": exif}))
    return path


def _own(limit: int | None = None, max_pixels: int = 1000, **files: str) -> OwnImages:
    given = SplitFiles.model_validate({"train": "photos", **files})
    return OwnImages(files=given, image_size=8, max_pixels=max_pixels, limit=limit)


def _read_all(own: OwnImages, data_dir: Path) -> None:
    for split in SPLITS:
        own.images(split, data_dir)


def test_folders_with_images_are_known(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "texts" / "class").mkdir(parents=True)
    (tmp_path / "texts" / "class" / "1.txt").touch()
    assert holds_images(photos)
    assert not holds_images(photos / CLASSES[0])
    assert not holds_images(tmp_path / "texts")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with 20 images of each of two classes, PNG and JPEG."""
    for number in range(40):
        _save(tmp_path / "photos" / CLASSES[number % 2] / f"{number}.{('png', 'jpg', 'JPEG')[number % 3]}", number)
    return tmp_path / "photos"


def test_each_class_has_a_folder(photos: Path, tmp_path: Path) -> None:
    splits = {split: _own().images(split, tmp_path) for split in SPLITS}
    assert {split: pixels.shape for split, (pixels, _) in splits.items()} == {
        "train": (36, 8, 8, 3),
        "dev": (2, 8, 8, 3),
        "test": (2, 8, 8, 3),
    }
    assert _own().labels(tmp_path) == list(CLASSES)
    expected = {decoded(path.read_bytes(), 8, 1000).tobytes(): path.parent.name for path in photos.rglob("*.*")}
    found = {
        image.tobytes(): CLASSES[label]
        for images, labels in splits.values()
        for image, label in zip(images, labels, strict=True)
    }
    assert found == expected


def test_splits_depend_on_content_not_on_names(photos: Path, tmp_path: Path) -> None:
    before = {split: _own().images(split, tmp_path) for split in SPLITS}
    for path in sorted(photos.rglob("*.*")):
        path.rename(path.with_stem(f"renamed{99 - int(path.stem)}"))
    for split, (images, labels) in before.items():
        again, same = _own().images(split, tmp_path)
        assert np.array_equal(again, images)
        assert np.array_equal(same, labels)


def test_copies_of_an_image_are_in_one_split(photos: Path, tmp_path: Path) -> None:
    for path in sorted(photos.rglob("*.*")):
        path.with_stem(f"copy-of-{path.stem}").write_bytes(path.read_bytes())
    images = {split: {image.tobytes() for image in _own().images(split, tmp_path)[0]} for split in SPLITS}
    assert {split: len(found) for split, found in images.items()} == {"train": 36, "dev": 2, "test": 2}
    assert len(set().union(*images.values())) == 40


def test_images_are_the_right_way_up(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = _save(tmp_path / "photos" / "a" / "turned.jpg", 1, exif)
    _save(tmp_path / "photos" / "b" / "plain.jpg", 2)
    images, labels = _own(dev="photos", test="photos").images("train", tmp_path)
    straight = decoded(turned.read_bytes(), 8, 1000)
    assert np.array_equal(images[labels.tolist().index(0)], straight)
    with Image.open(turned) as lying:
        assert not np.array_equal(straight, np.asarray(lying.resize((8, 8), Image.Resampling.BILINEAR)))


def test_a_file_lists_labels_and_paths(photos: Path, tmp_path: Path) -> None:
    lines = [f"{path.parent.name}\t{path.relative_to(tmp_path)}\n" for path in sorted(photos.rglob("*.*"))]
    (tmp_path / "photos.tsv").write_text("".join(lines), encoding="utf-8")
    for split in SPLITS:
        listed, in_folders = (_own(train=train).images(split, tmp_path) for train in ("photos.tsv", "photos"))
        assert np.array_equal(listed[0], in_folders[0])
        assert np.array_equal(listed[1], in_folders[1])


def test_splits_have_files_of_their_own(photos: Path, tmp_path: Path) -> None:
    path = _save(tmp_path / "more" / "dog" / "new.png", 99)
    (tmp_path / "test.tsv").write_text("cat\tmore/dog/new.png\n", encoding="utf-8")
    own = _own(dev="more", test=str(tmp_path / "test.tsv"))
    assert len(own.images("train", tmp_path)[0]) == 40
    for split, label in (("dev", 1), ("test", 0)):
        images, labels = own.images(split, tmp_path)
        assert np.array_equal(images, [decoded(path.read_bytes(), 8, 1000)])
        assert labels.tolist() == [label]


def test_a_limit_takes_images_of_all_classes(photos: Path, tmp_path: Path) -> None:
    images, labels = _own(limit=10).images("train", tmp_path)
    assert len(images) == 10
    assert set(labels.tolist()) == {0, 1}


def test_other_files_are_skipped_with_a_warning(photos: Path, tmp_path: Path) -> None:
    for name in ("cat/notes.txt", "readme.md", ".thumbnails/a.png", "dog/.DS_Store"):
        (photos / name).parent.mkdir(exist_ok=True)
        (photos / name).write_text("no image", encoding="utf-8")
    _save(photos / "outside.png", 1)
    with pytest.warns(UserWarning, match=r"skipped: cat/notes\.txt, outside\.png, readme\.md$"):
        assert _own().labels(tmp_path) == list(CLASSES)


def test_damaged_and_large_images_are_named(photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "0.png").write_text("no image", encoding="utf-8")
    with pytest.raises(ValueError, match=r"cat/0\.png: the image is neither a PNG nor a JPEG file$"):
        _read_all(_own(), tmp_path)
    with pytest.raises(ValueError, match=r"photos/.*: the image has 240 pixels; .* limit is 200; .*; and \d+ more$"):
        _own(max_pixels=200).images("train", tmp_path)


def test_a_class_needs_training_images(photos: Path, tmp_path: Path) -> None:
    _save(photos / "bird" / "a.png", 100)
    with pytest.raises(ValueError, match="photos: bird: a class of a single image is too small to hold out dev and"):
        _own().labels(tmp_path)
    assert _own(dev="photos", test="photos").labels(tmp_path) == ["bird", "cat", "dog"]


def test_a_class_of_one_image_stays_in_training(photos: Path, tmp_path: Path) -> None:
    held_out = _own().images("dev", tmp_path)[0][0]
    path = next(p for p in photos.rglob("*.*") if np.array_equal(decoded(p.read_bytes(), 8, 1000), held_out))
    (photos / "bird").mkdir()
    for name in ("a", "b"):
        (photos / "bird" / f"{name}{path.suffix}").write_bytes(path.read_bytes())
    path.unlink()
    labels = _own().labels(tmp_path)
    assert labels.index("bird") in _own().images("train", tmp_path)[1]
    assert all(labels.index("bird") not in _own().images(split, tmp_path)[1] for split in ("dev", "test"))


def test_a_class_of_the_test_images_alone_is_named(photos: Path, tmp_path: Path) -> None:
    _save(tmp_path / "test" / "fish" / "a.png", 100)
    with pytest.raises(ValueError, match="classes without a training image: fish"):
        _own(test="test").images("test", tmp_path)


def test_wrong_folders_and_lists_are_explained(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"photos is no file or folder; relative paths .* start at --data-dir"):
        _own().labels(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(ValueError, match="photos has no images: a folder for each class"):
        _own().labels(tmp_path)
    _save(tmp_path / "photos" / "cat" / "a.png", 1)
    with pytest.raises(ValueError, match="photos has only one class, 'cat'"):
        _own().labels(tmp_path)
    (tmp_path / "list.tsv").write_text("cat\tphotos/cat/a.png\ncat\tb.png\ncat\n", encoding="utf-8")
    said = r"list\.tsv, line 2: .*b\.png is not a file; .*; line 3: 1 column, not label<TAB>path"
    with pytest.raises(ValueError, match=said):
        _own(train="list.tsv").labels(tmp_path)
