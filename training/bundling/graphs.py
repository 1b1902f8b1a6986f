"""A graph to export: a module, its contract in the manifest, and example inputs.

Shapes: `B` sequences, `T` tokens of the longest.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.bundle.manifest import Graph

__all__ = ["ExportGraph", "Tensors", "contract", "random_sequences"]


@dataclass(frozen=True, slots=True)
class ExportGraph:
    """A module to export, its contract, and example inputs in the order of the contract's."""

    module: nn.Module
    contract: Graph
    examples: tuple[Tensor, ...]


Tensors = Mapping[str, tuple[str, tuple[str | int, ...]]]
"""Type and shape of each input or output; a string is a dimension that varies."""


def contract(inputs: Tensors, outputs: Tensors) -> Graph:
    """Return the contract of a graph: for each input and output its type and shape."""

    def specs(tensors: Tensors) -> list[dict[str, object]]:
        return [{"name": name, "dtype": dtype, "shape": shape} for name, (dtype, shape) in tensors.items()]

    return Graph.model_validate({"inputs": specs(inputs), "outputs": specs(outputs)}, strict=False)


def random_sequences(
    vocab_size: int, batch_size: int, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return random tokens `[B, T]` and lengths `[B]`, of which the first is T."""
    tokens = torch.randint(vocab_size, (batch_size, length), generator=generator)
    lengths = torch.randint(1, length + 1, (batch_size,), generator=generator)
    lengths[0] = length
    return tokens, lengths
