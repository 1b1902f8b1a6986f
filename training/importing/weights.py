"""The tensors of a model file, taken one by one, so that none is missing and none is left over."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.importing.errors import ImportRefused

__all__ = ["NamedWeights"]


@dataclass(frozen=True, slots=True)
class NamedWeights:
    """The tensors of a model file, by name, and those that have been read."""

    tensors: dict[str, Tensor]

    def take(self, *names: str, shape: tuple[int, ...]) -> Tensor:
        """Remove the tensors of these names, which are one weight, and return it; raises `ImportRefused`."""
        found = {name: self.tensors.pop(name) for name in names if name in self.tensors}
        if not found:
            raise ImportRefused(f"the weights lack {names[0]}")
        (name, weight), *others = found.items()
        if tuple(weight.shape) != shape:
            raise ImportRefused(f"weights: {name} has shape {list(weight.shape)}, not {list(shape)}")
        if not bool(weight.isfinite().all()):
            raise ImportRefused(f"weights: {name} has entries that are not finite")
        for other, values in others:
            if not torch.equal(values, weight):
                raise ImportRefused(f"weights: {other} differs from {name}, which config.json says it is tied to")
        return weight.float()

    def copy_to(self, name: str, module: nn.Module) -> None:
        """Copy the tensors `<name>.<parameter>` to the parameters of a module; raises `ImportRefused`."""
        for part, parameter in module.named_parameters():
            parameter.copy_(self.take(f"{name}.{part}", shape=tuple(parameter.shape)))
