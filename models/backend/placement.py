"""Where a session places the nodes of its graph: on the device that was asked for, or on the CPU."""

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import onnxruntime

from models.errors import UnsupportedDeviceError

__all__ = ["SHAPE_OPERATORS", "PlacedNode", "check_placement", "fallen_back", "placed_nodes"]

SHAPE_OPERATORS = frozenset(
    {"Add", "Cast", "Concat", "Div", "Gather", "Mul", "Range", "Shape", "Size", "Slice", "Squeeze", "Sub", "Unsqueeze"}
)
"""Operators that compute shapes, some numbers each, which onnxruntime places on the CPU on purpose."""

logger = logging.getLogger("softserve")

_CPU = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node of an optimized graph and the execution provider that computes it."""

    provider: str
    operator: str
    name: str


def placed_nodes(session: onnxruntime.InferenceSession) -> Iterator[PlacedNode]:
    """Yield the nodes of a session whose option `session.record_ep_graph_assignment_info` is 1."""
    for part in session.get_provider_graph_assignment_info():
        for node in part.get_nodes():
            operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            yield PlacedNode(part.ep_name, operator, node.name)


def fallen_back(nodes: Iterable[PlacedNode], allowed: Collection[str] = SHAPE_OPERATORS) -> list[PlacedNode]:
    """Return the nodes that the CPU computes and whose operators are not `allowed` to be there."""
    return [node for node in nodes if node.provider == _CPU and node.operator not in allowed]


def check_placement(graph: str, device: str, nodes: Iterable[PlacedNode], *, allow_cpu_fallback: bool) -> None:
    """Raise `UnsupportedDeviceError` that names the nodes of a graph on the CPU, or log it where that is allowed."""
    fallen = fallen_back(nodes)
    if not fallen:
        return
    problem = f"{graph}: {device} has no kernel for {', '.join(_named(fallen))}; the CPU would compute them"
    if not allow_cpu_fallback:
        raise UnsupportedDeviceError(f"{problem}; --allow-cpu-fallback accepts it")
    logger.warning(problem)


def _named(nodes: Iterable[PlacedNode]) -> Iterator[str]:
    """Yield each operator once, with the name of its first node."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(node.operator, []).append(node.name or "unnamed")
    for operator, (first, *others) in names.items():
        yield f"{operator} ({first} and {len(others)} more)" if others else f"{operator} ({first})"
