"""Tests of compressed bodies."""

import gzip
import resource
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from service.protocols.open_inference.compression import ENCODINGS, Decompressor, chosen_encoding, compressed


def decompressed(content, encoding, most, step=1 << 16):
    decompressor = Decompressor(encoding, most)
    received = [content[start : start + step] for start in range(0, len(content), step)]
    parts = [part for each in received for part in decompressor.parts(each)]
    assert max(map(len, parts), default=0) <= 1 << 16
    decompressor.finish()
    return b"".join(parts)


@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 65_537, 131_072, 500_000])
@pytest.mark.parametrize("step", [1, 7, 1 << 16])
def test_a_body_is_decompressed_in_parts(length, step):
    content = bytes(length)
    assert decompressed(compressed(content, "gzip"), "gzip", length, step) == content


@given(st.binary(max_size=200), st.sampled_from(sorted(ENCODINGS)))
def test_what_is_compressed_is_decompressed(content, encoding):
    assert decompressed(compressed(content, encoding), encoding, 200) == content


def test_formats_are_those_of_the_standard_library():
    assert decompressed(gzip.compress(b"text"), "gzip", 10) == b"text"
    assert decompressed(zlib.compress(b"text"), "deflate", 10) == b"text"
    assert gzip.decompress(compressed(b"text", "gzip")) == b"text"
    assert zlib.decompress(compressed(b"text", "deflate")) == b"text"


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_a_bomb_is_refused_without_its_memory(encoding):
    bomb = compressed(bytes(1 << 28), encoding)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(HTTPException, match="more than 1048576 bytes") as caught:
        decompressed(bomb, encoding, 1 << 20)
    assert caught.value.status_code == 413
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10, "kilobytes"


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"text", 400), (zlib.compress(b"text")[:-1], 400), (zlib.compress(b"text") + b"more", 400), (b"", 400)],
)
@pytest.mark.parametrize("step", [1, 100])
def test_a_broken_body_is_refused(content, status, step):
    with pytest.raises(HTTPException) as caught:
        decompressed(content, "deflate", 100, step)
    assert caught.value.status_code == status


def test_another_encoding_is_refused():
    with pytest.raises(HTTPException) as caught:
        decompressed(b"", "br", 100)
    assert caught.value.status_code == 415


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("", None), ("identity", None), ("gzip", "gzip"), ("br, deflate;q=0.5", "deflate"), ("gzip; q=0, br", None)],
)
def test_the_encoding_of_an_answer(accepted, encoding):
    assert chosen_encoding(accepted) == encoding
