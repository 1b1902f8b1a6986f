"""The tensors of a model file, taken one by one, so that none is missing and none is left over.

Those of a safetensors file are mapped, and become parameters as they are: a network needs no memory of its own.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.importing.errors import BY_OWN_IMPORTER, SAVED_AGAIN, ImportRefused

__all__ = ["NamedWeights", "assign", "output_bias", "without_memory"]


@dataclass(frozen=True, slots=True)
class NamedWeights:
    """The tensors of a model file, by name, and those that have been read."""

    tensors: dict[str, Tensor]

    def take(self, *names: str, shape: tuple[int, ...]) -> Tensor:
        """Remove the tensors of these names, which are one weight, and return it; raises `ImportRefused`."""
        found = {name: self.tensors.pop(name) for name in names if name in self.tensors}
        if not found:
            raise ImportRefused(f"the weights lack {names[0]}; {SAVED_AGAIN}")
        (name, weight), *others = found.items()
        if tuple(weight.shape) != shape:
            raise ImportRefused(f"weights: {name} has shape {list(weight.shape)}, not {list(shape)}; {SAVED_AGAIN}")
        if not all(bool(bound.isfinite()) for bound in weight.aminmax()):  # without a copy, and NaN is both bounds
            raise ImportRefused(f"weights: {name} has entries that are not finite; {SAVED_AGAIN}")
        for other, values in others:
            if not torch.equal(values, weight):
                raise ImportRefused(
                    f"weights: {other} differs from {name}, which config.json says it is tied to; correct "
                    "tie_word_embeddings there"
                )
        return weight.float()

    def copy_to(self, name: str, module: nn.Module) -> None:
        """Make the tensors `<name>.<parameter>` the parameters of a module; raises `ImportRefused`."""
        for part, parameter in list(module.named_parameters()):
            assign(module, part, self.take(f"{name}.{part}", shape=tuple(parameter.shape)))

    def expect_none_left(self, kind: str, unused: str = "") -> None:
        """Raise `ImportRefused` where weights are left that no model of a kind has; `unused` matches others."""
        if left := [name for name in sorted(self.tensors) if not re.fullmatch(unused, name)]:
            raise ImportRefused(f"the file has weights that no {kind} has: {', '.join(left[:5])}; {BY_OWN_IMPORTER}")


def output_bias(stored: Tensor, never_generated: Iterable[int]) -> nn.Parameter:
    """Return the bias of each output token `[V]`, minus infinity for those that are never generated."""
    bias = stored.clone()
    bias[sorted(token for token in never_generated if token < len(bias))] = -torch.inf
    return nn.Parameter(bias)


def assign(module: nn.Module, name: str, values: Tensor) -> None:
    """Make a tensor a parameter of a module, in place of the one of this name and shape, without a copy."""
    assert values.shape == getattr(module, name).shape
    setattr(module, name, nn.Parameter(values, requires_grad=False))


def without_memory() -> torch.device:
    """Return a context in which networks are made whose parameters are going to be assigned, and have no memory yet."""
    return torch.device("meta")
