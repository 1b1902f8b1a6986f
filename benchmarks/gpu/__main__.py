"""Measure the service, other libraries and servers, and training on a GPU, in parts that can be resumed.

    python -m benchmarks.gpu                            # ten minutes, on the first GPU
    python -m benchmarks.gpu --parts http servers       # some parts
    python -m benchmarks.gpu --device cpu --small       # as a slow test does: all parts, with tiny models

Each row is written to the results file as soon as it is measured. A second run with the same card and commit measures
the missing rows. A part is a process with a share of the time: one that fails, or does not end, is a row of the report,
and the others are measured.
"""

import sys
from pathlib import Path

import tyro

from benchmarks.gpu.machine import card, commit, versions
from benchmarks.gpu.parts import PARTS, run_parts
from benchmarks.gpu.results import Results

__all__ = ["main"]


def main(
    minutes: float = 10.0,
    device: str = "cuda",
    output: Path = Path("build") / "gpu" / "results.jsonl",
    parts: tuple[str, ...] = tuple(PARTS),
    small: bool = False,
    work: Path = Path("build") / "gpu",
) -> int:
    """Measure the rows that are missing, and print a report in Markdown; exit status 1 where a row failed.

    Args:
        minutes: Time for all parts together, the making of models included.
        device: Device to measure: cuda, cuda:1 and so on, or cpu.
        output: File of results, which is continued.
        parts: Parts to measure.
        small: Use tiny models and short measurements, to test the command.
        work: Directory for models that are made, texts and logs; they are kept.
    """
    unknown = [name for name in parts if name not in PARTS]
    if unknown:
        sys.exit(f"benchmarks.gpu: unknown part {unknown[0]!r}: there are {', '.join(PARTS)}")
    work = work.expanduser().resolve() / ("small" if small else "true")
    work.mkdir(parents=True, exist_ok=True)
    machine = {"device": card(device), "commit": commit()}
    results = Results(output.resolve(), {**machine, "small": str(small)})
    chosen = [name for name in PARTS if name in parts]
    run_parts(chosen, results, device=device, small=small, work=work, minutes=minutes)
    from benchmarks.gpu.report import report  # it imports all parts, which takes seconds

    found = results.read()
    print(report(found, chosen, {**machine, **versions(device)}, on_gpu=device != "cpu"))
    return 1 if any(each.status == "failed" for (part, _), each in found.items() if part in chosen) else 0


if __name__ == "__main__":
    sys.exit(tyro.cli(main, description=__doc__))
