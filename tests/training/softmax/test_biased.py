"""Tests of the softmax layer with a bias."""

import math

import torch
from torch.nn import functional

from training.softmax import BiasedSoftmax


def layer() -> BiasedSoftmax:
    torch.manual_seed(0)
    made = BiasedSoftmax(7, 4)
    with torch.no_grad():
        made.bias.normal_()
    return made


def test_probabilities_are_those_of_an_affine_layer() -> None:
    biased, hidden = layer(), torch.randn(5, 4)
    expected = functional.linear(hidden, biased.weight, biased.bias).log_softmax(-1)
    torch.testing.assert_close(biased.log_prob(hidden), expected)
    target = torch.tensor([0, 3, 6, 2, 2])
    torch.testing.assert_close(biased.target_log_prob(hidden, target), expected[torch.arange(5), target])


def test_the_loss_has_gradients_of_weights_and_bias() -> None:
    biased, hidden, target = layer(), torch.randn(5, 4), torch.tensor([0, 3, -100, 2, 2])
    loss = biased.loss(hidden, target)
    expected = functional.cross_entropy(
        functional.linear(hidden, biased.weight, biased.bias), target, ignore_index=-100, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(biased.loss(hidden, target, reduction="mean"), expected / 4)
    loss.backward()  # type: ignore[no-untyped-call]
    assert biased.bias.grad is not None
    assert biased.bias.grad.abs().sum() > 0


def test_a_class_of_bias_minus_infinity_has_probability_0() -> None:
    biased = layer()
    with torch.no_grad():
        biased.bias[3] = -math.inf
    found = biased.log_prob(torch.randn(2, 4))
    assert (found[:, 3] == -math.inf).all()
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(2))
