"""Tests of the comparison with other servers: short, with real servers and real load."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.servers import OURS, Server
from benchmarks.peers.texts import make_texts
from benchmarks.serving import Comparison
from service.settings import BUNDLED
from tests.fixtures.bundled import DE_EN
from tests.fixtures.optional_tools import needs

ROOT = Path(__file__).parents[2]
INTENTS = BUNDLED / "intents" / "2"
needs_wrk = needs("wrk")


def run(*flags, **options):
    command = [sys.executable, "-m", "benchmarks.serving", *map(str, flags)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, **options)


@needs_wrk
def test_the_service_and_naive_fastapi_are_compared(tmp_path):
    short = ["--connections", 1, 4, "--rounds", 1, "--seconds", 1, "--texts", 50]
    finished = run("--here", "--peers", "fastapi", *short, "--work", tmp_path)
    assert finished.returncode == 0, finished.stderr
    rows = [re.split(r" *\| *", line)[1:-1] for line in finished.stdout.splitlines() if re.match(r"\| \d", line)]
    assert {(row[0], row[1]) for row in rows} == {
        (connections, name) for connections in ("1", "4") for name in ("Softserve", "fastapi", "ceiling")
    }
    for connections, name, rate, _, p50, p99, errors, to_peer, to_ceiling in rows:
        assert float(rate) > 1, (connections, name)
        if name != "ceiling":
            assert float(p50.removesuffix(" ms")) <= float(p99.removesuffix(" ms"))
            assert (errors, float(to_ceiling) > 0) == ("0", True)
        if name == "fastapi":
            assert to_peer == "1.00"


@needs_wrk
def test_a_server_that_does_not_start_or_answers_wrongly_does_not_end_the_run(tmp_path):
    broken = Server(name="broken", command=lambda settings: ["-c", "raise SystemExit('no such model')"])
    wrong = replace(OURS, name="wrong", best=lambda answer: answer["results"][0]["labels"][1]["label"])
    comparison = Comparison(INTENTS, [broken, wrong, OURS], make_texts(50), tmp_path, here=True)
    comparison.round(0, [2], seconds=1)
    assert set(comparison.failures) == {"broken", "wrong"}
    assert "status 1: no such model" in comparison.failures["broken"]
    assert comparison.failures["wrong"] == "40 of 40 answers differ from those of onnxruntime by itself"
    assert [name for name, _ in comparison.loads] == ["Softserve"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--peers", "fastapi,triton"], "unknown peer 'triton': there are fastapi, litserve, bentoml"),
        (["--model", DE_EN], "does not classify texts: its task is translation"),
        (["--model", "nowhere"], "manifest.json is missing"),
    ],
)
@needs_wrk
def test_flags_that_cannot_be_are_explained(flags, message, tmp_path):
    finished = run(*flags, "--work", tmp_path)
    assert finished.returncode == 1
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr


def test_where_wrk_is_missing_nothing_starts(tmp_path):
    finished = run("--work", tmp_path, env={"PATH": str(tmp_path)})
    assert finished.returncode == 1
    assert "apt-get install wrk" in finished.stderr
    assert not any(tmp_path.iterdir())
