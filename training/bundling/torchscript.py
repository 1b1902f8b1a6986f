"""The TorchScript file of a bundle: one module with a method per graph, so that weights are stored once."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from training.bundling.graphs import ExportGraph

__all__ = ["save_torchscript"]


class _Methods(nn.Module):
    """Every graph as a method of one module; tracing needs plain methods on the module it traces."""

    def __init__(self, graphs: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.graphs = nn.ModuleDict(graphs)
        for name in graphs:
            setattr(self, name, self._method(name))

    def _method(self, name: str) -> object:
        def method(*inputs: Tensor) -> tuple[Tensor, ...]:
            outputs: tuple[Tensor, ...] = self.graphs[name](*inputs)
            return outputs

        return method


def save_torchscript(graphs: Mapping[str, ExportGraph], path: Path) -> None:
    """Trace all graphs into one file: tracing runs any Python, and branches that depend on inputs are scripted."""
    module = _Methods({name: graph.module for name, graph in graphs.items()}).eval()
    examples = {name: graph.examples for name, graph in graphs.items()}
    # Without gradients, kernels take their plain formulas, which TorchScript can hold.
    with warnings.catch_warnings(), torch.no_grad():
        # torch deprecates TorchScript; it stays an export format because users asked for it.
        warnings.simplefilter("ignore")
        traced = torch.jit.trace_module(module, examples, check_trace=False)
        torch.jit.save(traced, str(path))
