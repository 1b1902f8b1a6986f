"""Tests of sample texts."""

from pathlib import Path

import pytest

from training.importing.errors import ImportRefused
from training.importing.samples import BUILT_IN, Samples, read_samples


def test_those_of_a_file_are_compared_in_addition(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join([*(str(number) for number in range(100)), "", "  "]), encoding="utf-8")
    samples = read_samples(path)
    assert (len(samples.texts), samples.name) == (100, "texts.txt")
    compared = samples.compared()
    assert compared[: len(BUILT_IN)] == BUILT_IN
    assert compared[len(BUILT_IN) :] == tuple(str(number) for number in range(0, 100, 5))


def test_calibration_and_comparison_have_different_texts() -> None:
    samples = Samples(("a", "b", "c", "d", "e"), "")
    assert (samples.calibration(), samples.held_out()) == (("a", "c", "e"), ("b", "d"))
    assert read_samples(None).compared() == BUILT_IN


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert read_samples(path).texts == ("one", "two")


@pytest.mark.parametrize("content", [b"", b"one\n", b"\xff\xfe\nx\ny"])
def test_too_few_texts_and_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes(content)
    with pytest.raises(ImportRefused, match=r"must have two texts or more|is not a text file"):
        read_samples(path)
