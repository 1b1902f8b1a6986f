"""Tests of the command's flags."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["http://127.0.0.1:9", "--seconds", "-5"], "--seconds must be more than 0"),
        (["https://", "--seconds", "5"], "https:// is not an address"),
        (["next-word"], "next-word is not an address"),
    ],
)
def test_what_cannot_be_is_refused(load, arguments, text):
    status, out, err = load(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("benchmarks.load: ")
    assert text in err
    assert err.count("\n") == 1


def test_help_shows_the_flags(load):
    status, out, _ = load("--help")
    assert status == 0
    for text in ("--rate", "--warm-up", "--api-key-file", "SOFTSERVE_BENCH_API_KEY", "exit status"):
        assert text in out


def test_a_load_test_without_its_dependencies_names_the_extra():
    code = "import sys; sys.modules |= {'aiohttp': None}; from benchmarks.load.__main__ import main; sys.exit(main())"
    finished = subprocess.run([sys.executable, "-c", code, "http://127.0.0.1:9"], capture_output=True, text=True)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == "benchmarks.load: a load test needs aiohttp: pip install -e '.[bench]'\n"
