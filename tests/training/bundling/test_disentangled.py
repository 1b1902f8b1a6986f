"""Tests of exported disentangled attention."""

import pytest
import torch

from training.bundling.attention import projections
from training.bundling.disentangled import relative_layers
from training.networks.operators import attend_some
from training.networks.text_encoder import EncoderConfig, TextEncoder


@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_attention_is_that_of_the_network(length: int) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=20, hidden_size=8, inner_size=16, heads=2, layers=1, positions=12, position_buckets=4
    )
    encoder = TextEncoder(config).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.5)
    (layer,) = encoder.encoder_layers()
    attention, hidden = layer.attention, torch.randn(3, length, 8)
    (project,), (relative,) = projections([attention]), relative_layers(encoder)
    query, key, value = project(hidden)
    mixed = attend_some(query, key, value, relative(query, key), 2)
    expected = attention(hidden, attention.keys_values(hidden), None, relative=encoder.distances(length))
    torch.testing.assert_close(attention.output(mixed), expected, rtol=1e-5, atol=1e-5)


def test_an_encoder_with_vectors_of_positions_has_none() -> None:
    assert len(relative_layers(TextEncoder(EncoderConfig(vocab_size=20, hidden_size=8, heads=2, layers=1)))) == 0
