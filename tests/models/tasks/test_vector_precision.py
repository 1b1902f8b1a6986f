"""Vectors in fewer bits: cases by hand, and what sentence-transformers defines."""

import numpy as np
import pytest

from models.errors import QueryError
from models.tasks.vector_precision import checked_row, in_precision

VECTOR = np.array([1.0, -1.0, 0.0, 0.5, -0.004, 0.0118, 0.75, -1e-9], np.float32)


def test_int8_has_127_for_1():
    found = in_precision(VECTOR, "int8")
    assert (found.dtype, found.tolist()) == (np.int8, [127, -127, 0, 64, -1, 1, 95, 0])


def test_bits_are_elements_above_0():
    # 0b10010110
    assert in_precision(VECTOR, "ubinary").tolist() == [150]
    assert in_precision(VECTOR, "binary").tolist() == [150 - 128]
    two = np.concatenate([-np.ones(8), np.ones(8)]).astype(np.float32)
    assert (in_precision(two, "binary").dtype, in_precision(two, "binary").tolist()) == (np.int8, [-128, 127])
    assert (in_precision(two, "ubinary").dtype, in_precision(two, "ubinary").tolist()) == (np.uint8, [0, 255])


def test_float16_is_finite():
    found = in_precision(np.array([0.1, 1e6, -1e6], np.float32), "float16")
    assert found.dtype == np.float16
    assert found.tolist() == [float(np.float16(0.1)), 65504, -65504]


def test_float32_is_the_vector_itself():
    assert in_precision(VECTOR, "float32") is VECTOR


def test_size_and_type_of_a_row():
    forms = {
        name: checked_row(16, name, normalized=True) for name in ("float32", "float16", "int8", "binary", "ubinary")
    }
    assert forms == {
        "float32": (16, np.dtype("f4")),
        "float16": (16, np.dtype("f2")),
        "int8": (16, np.dtype("i1")),
        "binary": (2, np.dtype("i1")),
        "ubinary": (2, np.dtype("u1")),
    }
    for name, (size, dtype) in forms.items():
        found = in_precision(np.ones(16, np.float32), name)
        assert (found.shape, found.dtype) == ((size,), dtype)
    with pytest.raises(QueryError, match="int8 is for vectors of length 1"):
        checked_row(16, "int8", normalized=False)
    with pytest.raises(QueryError, match="a multiple of 8, not 12"):
        checked_row(12, "ubinary", normalized=True)
