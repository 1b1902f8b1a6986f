"""The process that tries a bundle: its input, its answers and its end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from models.private_copy import private_directory
from service.engine.trial_process import Trial, TrialOutcome, run
from tests.fixtures.bundled import NEXT_WORD
from tests.service.engine.test_trial import OPTIONS

ROOT = Path(__file__).parents[3]


def trial(bundle, directory=None, modules=(), **options):
    return Trial(bundle=bundle, directory=directory, modules=modules, options=OPTIONS.model_copy(update=options))


@pytest.fixture
def process():
    started = subprocess.Popen(
        [sys.executable, "-m", "service.engine.trial_process"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield started
    started.kill()
    started.communicate()


def test_a_trial_is_answered_by_the_directory_of_the_files():
    with private_directory() as directory:
        found = run(trial(NEXT_WORD, directory))
    assert found == TrialOutcome(path=directory / "next-word" / NEXT_WORD.name)


def test_problems_are_answered_and_shortened(tmp_path):
    bundle = tmp_path / "next-word" / "4"
    bundle.mkdir(parents=True)
    assert run(trial(bundle)) == TrialOutcome(error="bundle", problems=("manifest.json is missing",))
    (bundle / "manifest.json").write_text(json.dumps({"task": "x" * 100_000}))
    found = run(trial(bundle))
    assert found.error == "bundle"
    assert max(map(len, found.problems)) == 500


def test_an_unavailable_device_is_answered():
    assert run(trial(NEXT_WORD, devices=("cuda",))).error == "device"


def test_the_process_writes_nothing_but_the_outcome(process, tmp_path):
    (tmp_path / "manifest.json").mkdir()
    process.stdin.write(trial(tmp_path, modules=("this", "no_such_module")).model_dump_json().encode() + b"\n")
    process.stdin.flush()
    output = process.stdout.read()
    assert TrialOutcome.model_validate_json(output).problems == (
        "manifest.json cannot be read: it is a directory, not a file",
    )
    assert b"The Zen of Python" in process.stderr.read()


def test_the_process_ends_with_the_one_that_started_it(process, tmp_path):
    """Whatever it computes: the other end of its standard input is closed then."""
    (tmp_path / "endless.py").write_text("while True: pass")
    request = trial(tmp_path, modules=("endless",)).model_dump_json()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from service.engine.trial_process import main; main()"
    endless = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE)
    endless.stdin.write(request.encode() + b"\n")
    endless.stdin.close()
    assert endless.wait(60) == 1
