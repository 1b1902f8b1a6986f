"""Run every attack of the adversarial suite on a server under a memory limit, and print a table of the effects.

    python -m benchmarks.attacks --model-dirs models/bundled DIRECTORY_OF_AN_IMAGE_CLASSIFIER

A server that an attack ends is started again, and the table says so. The exit status is 1 where any attack was not
withstood; the tests in `tests/service/hostile` check the same.
"""

import os
import platform
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tyro

from service.settings import BUNDLED
from tests.support.hostile.attack import Attack, Outcome, delays, measure, violations
from tests.support.hostile.bodies import BODIES
from tests.support.hostile.connections import CONNECTIONS, SLOW
from tests.support.hostile.deadlines import DEADLINES
from tests.support.hostile.images import IMAGES
from tests.support.hostile.loops import LOOPS, PAUSED
from tests.support.hostile.protocols import PROTOCOLS
from tests.support.hostile.results import RESULTS
from tests.support.hostile.texts import TEXTS
from tests.support.hostile.translations import TRANSLATIONS
from tests.support.limited_server import LimitedServer
from tests.support.probe import LoopProbe

_COLUMNS = (
    "attack",
    "slowest answer",
    "loop blocked",
    "answers",
    "largest",
    "memory",
    "peak",
    "after",
    "next request",
    "verdict",
)
FAMILIES: dict[str, Sequence[Attack]] = {
    "bodies": BODIES,
    "texts": TEXTS,
    "connections": CONNECTIONS,
    "slow": SLOW,
    "deadlines": DEADLINES,
    "results": RESULTS,
    "translations": TRANSLATIONS,
    "images": IMAGES,
    "protocols": PROTOCOLS,
    "loops": LOOPS,
    "pauses": [PAUSED],
}


def main(
    model_dirs: tuple[Path, ...] = (BUNDLED,),
    memory_mb: int = 768,
    only: str = "",
    families: tuple[str, ...] = tuple(FAMILIES),
    options: str = "",
) -> None:
    """Print the table.

    Args:
        model_dirs: Directories of bundles; without an image classifier the images are answered with 404, and without a
            bundle of `tests/fixtures/looping.py` the loops.
        memory_mb: Limit of the server's memory.
        only: A regular expression that the names of attacks must match.
        families: Tables of attacks, all of them by default.
        options: Further flags of `softserve serve`.
    """
    attacks = [attack for family in families for attack in FAMILIES[family] if re.search(only, attack.name)]
    arguments = ["--model-dirs", *model_dirs, *options.split()]
    print(f"{platform.machine()}, {os.cpu_count()} processors, {memory_mb} MB; time in s, memory in MB")
    print(f"| {' | '.join(_COLUMNS)} |")
    print("| --- " * len(_COLUMNS) + "|", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "server.log"
        server = LimitedServer(memory_mb, *arguments, log=log)
        try:
            server.start()
            probe = LoopProbe(server.port)
            for attack in attacks:
                outcome = measure(server, probe, attack)
                found = violations(attack, outcome) + delays(attack, outcome)
                failed += bool(found)
                print(_row(attack, outcome, found), flush=True)
                if outcome.ended or outcome.recovery > 2:
                    probe.close()
                    server.stop()
                    server = LimitedServer(memory_mb, *arguments, log=log)
                    server.start()
                    probe = LoopProbe(server.port)
            probe.close()
        finally:
            server.stop()
    print(f"\n{failed} of {len(attacks)} attacks were not withstood")
    raise SystemExit(failed > 0)


def _row(attack: Attack, outcome: Outcome, found: Sequence[str]) -> str:
    largest = max((answer.size for answer in outcome.answers), default=0)
    cells = (
        attack.name,
        f"{max((answer.seconds for answer in outcome.answers), default=outcome.seconds):.2f}",
        f"{outcome.stalls.longest:.3f}",
        outcome.statuses or "none",
        f"{largest:,} B",
        f"{outcome.before:.0f}",
        f"{outcome.peak:.0f}" if not outcome.ended else "killed",
        f"{outcome.after:.0f}",
        f"{outcome.recovery:.3f}",
        "; ".join(found) or "withstood",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    tyro.cli(main)
