"""The structure of image files, by hand; test_image_decoding.py has what the decoder makes of such files."""

import pytest

from models import QueryError
from models.image.files import check_structure

PNG = b"\x89PNG\r\n\x1a\n"


def chunk(kind, data=b""):
    return len(data).to_bytes(4) + kind + data + b"\0\0\0\0"


def segment(marker, data=b""):
    return bytes([0xFF, marker]) + (2 + len(data)).to_bytes(2) + data


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"GIF89a",
        PNG,
        PNG + chunk(b"IHDR", b"\0" * 13) + chunk(b"zTXt") * 16 + chunk(b"IEND"),
        PNG + chunk(b"IDAT", b"zTXt" * 100) + chunk(b"IEND") + chunk(b"zTXt") * 100,
        PNG + b"\xff\xff\xff\xffIDAT",  # a length beyond the end
        b"\xff\xd8" + segment(0xE0) * 4000 + segment(0xDA) + b"\x01\xff\x00\xff\xd0" * 10_000 + b"\xff\xd9",
        b"\xff\xd8" + (segment(0xDA) + b"pixels") * 64,
        b"\xff\xd8\xff",
    ],
    ids=range(9),
)
def test_files_of_usual_structure_pass(file):
    check_structure(file)


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (PNG + chunk(b"zTXt") * 9 + chunk(b"iTXt") * 8, "more than 16 chunks of compressed metadata"),
        (PNG + chunk(b"IDAT") * 65_537, "more than 65536 chunks"),
        (b"\xff\xd8" + segment(0xE1) * 4097, "more than 4096 segments"),
        (b"\xff\xd8" + (segment(0xDA) + b"pixels") * 65, "more than 64 scans"),
        (b"\xff\xd8" + b"\0" * 65_537 + segment(0xDA), "more than 65536 bytes before its pixels"),
    ],
    ids=range(5),
)
def test_files_made_to_be_slow_are_refused(file, problem):
    with pytest.raises(QueryError, match=problem):
        check_structure(file)
