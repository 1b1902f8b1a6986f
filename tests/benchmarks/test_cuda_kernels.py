"""Tests of the table of CUDA kernels as it is written; that of its content is in tests/training/bundling."""

from benchmarks.cuda_kernels import merged


def test_kernels_that_differ_in_one_type_are_one():
    kernels = [{"T": ["float"], "I": ["int64"]}, {"T": ["float16"], "I": ["int64"]}, {"T": ["float"], "I": ["int32"]}]
    assert merged(kernels[:2]) == [{"T": ["float", "float16"], "I": ["int64"]}]
    assert merged([kernels[0], kernels[2]]) == [{"T": ["float"], "I": ["int32", "int64"]}]


def test_no_type_is_added():
    kernels = [{"T": ["float"], "U": ["float"]}, {"T": ["float16"], "U": ["float16"]}]
    assert merged(kernels) == kernels
    assert merged([{"T": ["float"]}, {"T1": ["float"]}]) == [{"T": ["float"]}, {"T1": ["float"]}]


def test_a_kernel_of_all_types_is_merged_from_its_parts():
    kernels = [{"T": [t], "U": [u]} for t in ("float", "float16") for u in ("float", "float16")]
    assert merged(kernels) == [{"T": ["float", "float16"], "U": ["float", "float16"]}]
