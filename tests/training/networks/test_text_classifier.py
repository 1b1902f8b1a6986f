"""Tests of text classifiers."""

import pytest
import torch

from training.networks.text_classifier import TextClassifier, pooled
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.softmax import GeneralizedSoftmax

HIDDEN = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], [[5.0, 6.0], [float("nan"), 0.0], [0.0, 0.0]]])
LENGTHS = torch.tensor([2, 1])


def test_the_mean_is_that_of_a_texts_own_tokens() -> None:
    assert pooled(HIDDEN, LENGTHS, "mean").tolist() == [[2.0, 3.0], [5.0, 6.0]]


def test_the_first_is_that_of_the_start() -> None:
    assert pooled(HIDDEN, LENGTHS, "cls").tolist() == [[1.0, 2.0], [5.0, 6.0]]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_classifier_pools_what_its_encoder_says(pooling: str) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(vocab_size=9, hidden_size=4, inner_size=8, heads=2, layers=1, positions=5, dropout=0.5)
    model = TextClassifier(TextEncoder(config), GeneralizedSoftmax(3, 4), pooling).eval()  # type: ignore[arg-type]
    tokens, lengths = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([3, 2])
    expected = pooled(model.encoder(tokens, lengths), lengths, model.pooling)
    assert torch.equal(model(tokens, lengths), expected)
    assert not torch.equal(model.train()(tokens, lengths), expected)
