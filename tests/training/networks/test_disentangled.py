"""Tests of disentangled attention; `test_hugging_face.py` compares whole encoders with the reference implementation."""

import pytest
import torch

from tests.fixtures.optional_tools import needs
from training.networks.disentangled import Distances, distance_buckets, relative_scores


def test_near_distances_have_a_bucket_each_and_far_ones_share_them() -> None:
    assert distance_buckets(4, 4, None).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert distance_buckets(6, 2, None).tolist() == [0, 0, 0, 0, 1, 2, 3, 3, 3, 3, 3]
    # Exact to 2; 3 to 7 are ceil(log(distance / 2) / log(7 / 2)) + 2 = 3.
    assert distance_buckets(8, 4, 8).tolist() == [1, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7]


@needs("transformers")
@pytest.mark.parametrize(("span", "positions"), [(256, 512), (4, 12), (7, 48), (2, 5), (64, 16)])
def test_buckets_are_those_of_transformers(span: int, positions: int) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    distances = torch.arange(1 - positions, positions)
    expected = make_log_bucket_position(distances, span, positions).long() + span
    assert torch.equal(distance_buckets(positions, span, positions), expected.clamp(0, 2 * span - 1))


def test_scores_are_the_products_with_vectors_of_distances() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 2, 3, 4, 5, generator=generator, dtype=torch.float64)
    keys, queries = torch.randn(2, 1, 3, 5, 6, generator=generator, dtype=torch.float64)
    buckets = torch.randint(6, (4, 4), generator=generator)
    scores = relative_scores(query, key, keys, queries, buckets)
    one, other = (relative_scores(query, key, *tables, buckets) for tables in ((keys, None), (None, queries)))
    torch.testing.assert_close(one + other, scores)
    for text in range(2):
        for head in range(3):
            for i in range(4):
                for j in range(4):
                    row = buckets[i, j]
                    expected = (
                        query[text, head, i] @ keys[0, head, :, row] + key[text, head, j] @ queries[0, head, :, row]
                    )
                    torch.testing.assert_close(scores[text, head, i, j], expected)


@pytest.mark.parametrize("length", [1, 4, 5, 20])
def test_a_short_text_needs_the_vectors_of_its_distances_only(length: int) -> None:
    distances = Distances(8, 20, 3, 1e-7)
    torch.nn.init.normal_(distances.vectors)
    vectors, buckets = distances(length)
    assert vectors.shape == (1, 2 * length if length <= 4 else 16, 3)
    every = distances.norm(distances.vectors)
    for i in range(length):
        for j in range(length):
            expected = every[distances.buckets[i - j + 19]]
            torch.testing.assert_close(vectors[0, buckets[i, j]], expected)
