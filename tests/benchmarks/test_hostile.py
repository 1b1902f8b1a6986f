"""Tests of the benchmarks of a server under a memory limit: short runs, and seeds that repeat their requests."""

import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.attacks import FAMILIES
from benchmarks.fuzz import lag_quantile
from tests.support.hostile.attack import Attack, Outcome, delays, violations
from tests.support.hostile.mixtures import mixtures
from tests.support.limited_server import Answer
from tests.support.probe import Stalls

ROOT = Path(__file__).parents[2]


def run(module, *flags):
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, flags)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_attacks_are_made_and_their_table_is_printed():
    finished = run("attacks", "--families", "bodies", "deadlines", "--only", "nested objects|of 1 ms: next-word")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    rows = [line.strip("| ").split(" | ") for line in finished.stdout.splitlines() if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == ["170,000 nested objects", "deadline of 1 ms: next-word, 16 clients"]
    assert {row[-1] for row in rows} == {"withstood"}
    assert rows[0][3] == "413 x 1"


def test_attacks_have_names_of_their_own():
    names = [attack.name for attacks in FAMILIES.values() for attack in attacks]
    assert len(names) == len(set(names)) > 200


def test_a_fuzzer_runs():
    finished = run("fuzz", "--requests", 60, "--seed", 1)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "0 violations" in finished.stdout
    table = [line for line in finished.stdout.splitlines() if re.match(r"\| (/v1/|others)", line)]
    assert sum(int(cell) for line in table for cell in line.strip("| ").split(" | ")[1:]) == 60


def test_a_seed_gives_the_same_mixtures():
    one, again, other = (list(islice(mixtures(seed, images=False), 3)) for seed in (1, 1, 2))
    assert one == again
    assert one != other


LAG = "softserve_event_loop_lag_seconds"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({}, None),
        ({f"{LAG}_count": 10, f"{LAG}_bucket{{0.1}}": 10, f"{LAG}_bucket{{+Inf}}": 10}, None),
        ({f"{LAG}_count": 1010, f"{LAG}_bucket{{0.1}}": 1009, f"{LAG}_bucket{{+Inf}}": 1010}, 0.1),
        ({f"{LAG}_count": 1010, f"{LAG}_bucket{{0.1}}": 1008, f"{LAG}_bucket{{+Inf}}": 1010}, float("inf")),
    ],
)
def test_the_quantile_of_the_lag_is_that_since_the_beginning(after, expected):
    before = {f"{LAG}_count": 10, f"{LAG}_bucket{{0.1}}": 10, f"{LAG}_bucket{{+Inf}}": 10}
    assert lag_quantile(before, after, 0.999) == expected


REFUSAL = Answer(422, 100)


def outcome(answers=(REFUSAL,), **changes):
    known = {"seconds": 0.1, "stalls": Stalls(0.01), "before": 100.0, "peak": 200.0, "after": 100.0, "recovery": 0.01}
    return Outcome(answers, **{**known, "ended": False, **changes})


@pytest.mark.parametrize(
    ("measured", "broken", "late"),
    [
        (outcome(), [], []),
        (outcome([Answer(200, 50_000), Answer(422, 50_000)]), ["status 200", "a refusal of 50000 bytes"], []),
        (outcome(after=121.0), ["100 MB before, 121 MB after"], []),
        (outcome(ended=True, recovery=float("inf")), ["the server ended"], []),
        (
            outcome(stalls=Stalls(0.2), recovery=0.3),
            [],
            ["event loop blocked for 0.200 s", "a normal request took 0.30 s"],
        ),
        (outcome(seconds=2.0), [], ["took 2.00 s"]),
    ],
)
def test_an_attack_says_which_bounds_were_broken(measured, broken, late):
    attack = Attack(name="an attack", run=lambda server: [], statuses={422}, max_seconds=1.0)
    assert violations(attack, measured) == broken
    assert [found.removesuffix(" afterwards") for found in delays(attack, measured)] == late
