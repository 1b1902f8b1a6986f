"""Tests of the command: its target selects what is measured."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["next-word", "--rate", "5"], "--rate has an effect only on a server"),
        (["--texts-per-request", "5"], "--texts-per-request has an effect only on a server"),
        (["http://127.0.0.1:9", "--rounds", "5"], "--rounds has no effect on a server"),
        (["http://127.0.0.1:9", "--seconds", "-5"], "--seconds must be more than 0"),
        (["https://", "--seconds", "5"], "https:// is not an address"),
    ],
)
def test_an_option_without_effect_or_sense_is_refused(bench, arguments, text):
    status, out, err = bench(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("softserve: ")
    assert text in err
    assert err.count("\n") == 1


def test_help_shows_both_kinds(bench):
    status, out, _ = bench("--help")
    assert status == 0
    for text in ("--model-dir", "--rate", "--warm-up", "--api-key-file", "SOFTSERVE_BENCH_API_KEY", "exit status"):
        assert text in out


def test_the_other_commands_do_not_pay_for_the_http_client():
    code = "import sys, service.cli; sys.exit(bool({'aiohttp', 'rich', 'yarl'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


def without_the_extra(*arguments):
    """Run the command where aiohttp and rich are not installed."""
    code = "import sys; sys.modules |= {'aiohttp': None, 'rich': None, 'yarl': None}; import service.cli as c; c.main()"
    command = [sys.executable, "-c", code, "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_load_test_without_its_dependencies_names_the_extra():
    finished = without_the_extra("http://127.0.0.1:9")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("softserve: a load test needs ")
    assert finished.stderr.endswith(": pip install 'softserve[bench]'\n")


def test_a_model_is_measured_in_process_without_the_extra():
    finished = without_the_extra("next-word", "--rounds", "1", "--threads", "1")
    assert finished.returncode == 0, finished.stderr
    assert len(finished.stdout.splitlines()) == 6
