"""Guided copying: a loss by which a component `copy` learns where in the source a target stands.

A mixture alone teaches a new component little: it has little weight, so that of a token which the decoder does not know
it gets a small part of the gradient.

Shapes: `B` sentences, `T` target tokens, `d` hidden size.
"""

from collections.abc import Iterator

from torch import Tensor, nn

from training.softmax import GeneralizedSoftmax, Source
from training.softmax.components import Attention, Component

__all__ = ["copying_loss", "train_copying_alone"]


def copying_loss(layer: GeneralizedSoftmax, hidden: Tensor, source: Source, targets: Tensor) -> Tensor:
    """Return the mean negative log-probability that copying gives to targets that stand in the source, a scalar.

    hidden `[B, T, d]`, targets `[B, T]`. Several components that copy are summed; without such a target it is 0.
    """
    total = hidden.new_zeros(())
    for component in _copying(layer):
        found = component.distribution(hidden, source)
        assert isinstance(found, Attention)
        log_prob = found.target_log_prob(targets.flatten())
        stands = log_prob > -float("inf")
        total = total - log_prob.masked_fill(~stands, 0.0).sum() / stands.sum().clamp(min=1)
    return total


def train_copying_alone(model: nn.Module, layer: GeneralizedSoftmax) -> None:
    """Freeze all parameters of a model but those of its layer's components that copy, and of the mixture's weights."""
    model.requires_grad_(False)
    for component in _copying(layer):
        component.requires_grad_(True)
    if (prior := getattr(layer, "prior", None)) is not None:
        prior.requires_grad_(True)


def _copying(layer: GeneralizedSoftmax) -> Iterator[Component]:
    return (each for each in layer.other_components() if each.reads_source)
