"""Format the results as a Markdown table."""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.peers.load import LoadResult

__all__ = ["table"]

_HEAD = (
    "| connections | server | requests/s | least to most | p50 | p99 | errors | of the best peer | of the ceiling |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)


def table(
    loads: Mapping[tuple[str, int], Sequence[LoadResult]],
    ceilings: Mapping[int, Sequence[float]],
    failures: Mapping[str, str],
    ours: str,
) -> str:
    """Return medians over rounds, the fastest first.

    Args:
        loads: Results of each server and number of connections, one per round.
        ceilings: Texts/s without HTTP for each number of connections, one per round.
        failures: Errors of the servers that were left out.
        ours: Name of this project's server.
    """
    lines = [*_HEAD]
    for connections, rates in sorted(ceilings.items()):
        rows = {name: found for (name, count), found in loads.items() if count == connections}
        peers = [_rate(found) for name, found in rows.items() if name != ours]
        ceiling = statistics.median(rates)
        lines += [
            _row(connections, name, rows[name], max(peers, default=0.0), ceiling)
            for name in sorted(rows, key=lambda name: -_rate(rows[name]))
        ]
        lines.append(
            f"| {connections} | ceiling | {ceiling:.0f} | {min(rates):.0f} to {max(rates):.0f} |  |  |  |  | 1 |"
        )
    if failures:
        lines.append("")
        lines += [f"* **{name} failed**: {reason}" for name, reason in failures.items()]
    return "\n".join(lines)


def _row(connections: int, name: str, loads: Sequence[LoadResult], best_peer: float, ceiling: float) -> str:
    rate, rates = _rate(loads), [load.rate for load in loads]
    p50, p99 = (statistics.median(getattr(load, each) for load in loads) for each in ("p50", "p99"))
    to_peer = f"{rate / best_peer:.2f}" if best_peer else ""
    return (
        f"| {connections} | {name} | {rate:.0f} | {min(rates):.0f} to {max(rates):.0f} | {p50:.1f} ms | {p99:.1f} ms | "
        f"{sum(load.errors for load in loads)} | {to_peer} | {rate / ceiling:.2f} |"
    )


def _rate(loads: Sequence[LoadResult]) -> float:
    return statistics.median(load.rate for load in loads)
