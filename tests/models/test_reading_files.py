"""Entries of a bundle that are no files, or too large ones, and the copy that checking makes."""

import os

import pytest

from models.reading import MAX_GRAPH_BYTES, MAX_MANIFEST_BYTES, MAX_TEXT_BYTES, validate, verify


def test_a_fifo_as_manifest_blocks_nothing(bundle):
    (bundle / "manifest.json").unlink()
    os.mkfifo(bundle / "manifest.json")
    assert validate(bundle) == ["manifest.json cannot be read: it is a FIFO, not a file"]


def test_an_endless_manifest_is_not_read(bundle):
    (bundle / "manifest.json").unlink()
    (bundle / "manifest.json").symlink_to("/dev/zero")
    assert validate(bundle) == ["manifest.json cannot be read: it is a device, not a file"]


@pytest.mark.parametrize("name", ["weights.bin", "score.onnx", "tokenizer.json"])
@pytest.mark.parametrize(("target", "kind"), [("/dev/zero", "a device"), ("fifo", "a FIFO"), ("..", "a directory")])
def test_other_files_must_be_files_too(bundle, tmp_path, name, target, kind):
    os.mkfifo(tmp_path / "fifo")
    (bundle / name).unlink()
    (bundle / name).symlink_to(tmp_path / target)
    assert validate(bundle) == [f"{name} cannot be used: it is {kind}, not a file"]


@pytest.mark.parametrize(
    ("name", "limit"),
    [("manifest.json", MAX_MANIFEST_BYTES), ("tokenizer.json", MAX_TEXT_BYTES), ("score.onnx", MAX_GRAPH_BYTES)],
)
def test_larger_files_than_allowed_are_not_read(bundle, name, limit):
    os.truncate(bundle / name, limit + 1)
    (problem,) = validate(bundle)
    assert problem.startswith(name)
    assert problem.endswith(f"it has {limit + 1:,} bytes; the limit is {limit:,}")


def test_verifying_into_a_directory_copies_the_files(bundle, tmp_path):
    found = verify(bundle, tmp_path / "copy", skip=["score.onnx"])
    assert found.path == tmp_path / "copy" / "next-word" / bundle.name
    names = {path.name for path in found.path.iterdir()}
    assert names == {path.name for path in bundle.iterdir()} - {"score.onnx"}
    assert all((found.path / name).read_bytes() == (bundle / name).read_bytes() for name in names)
    assert (verify(bundle).path, verify(bundle).digest) == (bundle, found.digest)
