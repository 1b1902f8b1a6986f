"""Tests of classifiers of images: what they answer, and to what rubbish."""

import contextlib
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from models import ImageClassifier, QueryError
from models.image.decoding import decoded
from models.store import load_bundle
from tests.fixtures.images import LABELS, file_of, shape
from training.bundling.bundle import WrittenBundle

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is :DeprecationWarning")
GENERATOR = np.random.default_rng(5)


@pytest.fixture(scope="module", params=["onnx", "torchscript"])
def classifier(request: pytest.FixtureRequest, shapes_export: WrittenBundle) -> ImageClassifier:
    model = load_bundle(shapes_export.path, backend=request.param)
    assert isinstance(model, ImageClassifier)
    return model


def _large_png(size: int) -> bytes:
    """The header of a black PNG of that height and width, and little else."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 999)) + chunk(b"IEND", b"")
    )


def test_colours_are_told(classifier: ImageClassifier) -> None:
    images = [file_of(shape(label, GENERATOR)) for label in LABELS * 10]
    found = classifier.classify(images, top_k=1)
    assert np.mean([result.labels[0].label == label for result, label in zip(found, LABELS * 10, strict=True)]) > 0.9


def test_classes_of_probability_0_are_left_out(classifier: ImageClassifier) -> None:
    (result,) = classifier.classify([file_of(shape("red", GENERATOR))], top_k=100)
    assert len(result.labels) == 2  # sparse_k
    assert sum(each.probability for each in result.labels) == pytest.approx(1)


def test_an_answer_does_not_depend_on_neighbours(classifier: ImageClassifier) -> None:
    images = [file_of(shape(LABELS[index % 4], GENERATOR)) for index in range(50)]
    together = classifier.classify(images, 4)
    for image, result in zip(images[::7], together[::7], strict=True):
        (alone,) = classifier.classify([image], 4)
        assert [each.label for each in alone.labels] == [each.label for each in result.labels]
        probabilities = [each.probability for each in result.labels]
        assert [each.probability for each in alone.labels] == pytest.approx(probabilities, rel=1e-4)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "I;16"])
def test_every_kind_of_png_has_an_answer(classifier: ImageClassifier, mode: str) -> None:
    file = io.BytesIO()
    (Image.new("I;16", (20, 9), 500) if mode == "I;16" else Image.new("RGB", (20, 9)).convert(mode)).save(file, "PNG")
    assert classifier.classify([file.getvalue()])[0].labels


def test_a_jpeg_is_seen_the_right_way_up() -> None:
    image = Image.new("RGB", (32, 32))
    image.paste((255, 255, 255), (0, 0, 32, 16))
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by half
    file = io.BytesIO()
    image.save(file, "JPEG", exif=exif)
    pixels = decoded(file.getvalue(), 32, 10_000)
    assert pixels[:8].mean() < 20
    assert pixels[-8:].mean() > 235


def _with_chunk(name: bytes, content: bytes) -> bytes:
    """A PNG file with another chunk before its pixels."""
    file = file_of(shape("red", GENERATOR))
    at = file.index(b"IDAT") - 4
    chunk = struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    return file[:at] + chunk + file[at:]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (b"eXIf", b"II*\0"),
        (b"iTXt", b"exif\0\0\0\0\0hello"),
        (b"tEXt", b"transparency\0hello"),
        (b"tRNS", b"\0"),
        (b"gAMA", b"\0"),
        (b"pHYs", b"\0"),
        (b"zzZz", b"hello"),
    ],
)
def test_odd_metadata_is_an_answer_or_a_clear_error(classifier: ImageClassifier, name: bytes, content: bytes) -> None:
    with contextlib.suppress(QueryError):
        assert classifier.classify([_with_chunk(name, content)])[0].labels


def test_16_bits_are_scaled_and_not_cut_off() -> None:
    file = io.BytesIO()
    grey = np.full((8, 8), 40 * 256, np.uint16)
    grey[:4] = 200 * 256
    Image.fromarray(grey).save(file, "PNG")
    pixels = decoded(file.getvalue(), 8, 100)
    assert pixels[0, 0].tolist() == [200] * 3
    assert pixels[7, 7].tolist() == [40] * 3


def test_what_is_transparent_is_white() -> None:
    file = io.BytesIO()
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.paste((255, 0, 0, 255), (0, 0, 8, 4))
    image.save(file, "PNG")
    pixels = decoded(file.getvalue(), 8, 100)
    assert pixels[0, 0].tolist() == [255, 0, 0]
    assert pixels[7, 7].tolist() == [255, 255, 255]


RUBBISH = [
    (b"", "neither a PNG nor a JPEG"),
    (b"hello", "neither a PNG nor a JPEG"),
    (file_of(shape("red", GENERATOR))[:200], "damaged"),
    (file_of(shape("red", GENERATOR), "GIF"), "neither a PNG nor a JPEG"),
    (file_of(shape("red", GENERATOR), "BMP"), "neither a PNG nor a JPEG"),
    (_large_png(200), "40000 pixels; the model's limit is 10000"),
    (_large_png(20_000), "pixels"),
    (_large_png(2_000_000_000), "pixels|neither|damaged"),
    (_large_png(64), "damaged"),
    (b"\x89PNG\r\n\x1a\n" + b"\xff" * 100, "neither|damaged"),
    (b"\xff\xd8\xff\xe0" + b"\0" * 50, "neither|damaged"),
]


@pytest.mark.parametrize(("image", "message"), RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_is_refused(classifier: ImageClassifier, image: bytes, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        classifier.classify([image])


def test_less_than_one_class_is_an_error(classifier: ImageClassifier) -> None:
    with pytest.raises(QueryError, match="top_k must be at least 1, not 0"):
        classifier.classify([file_of(shape("red", GENERATOR))], top_k=0)
