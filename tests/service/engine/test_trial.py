"""A bundle is tried in a process of its own, which limits end."""

import os
import signal
import sys
import threading

import pytest

from models import BundleError, UnsupportedDeviceError
from models.private_copy import private_directory
from service.engine.replicas import ReplicaOptions
from service.engine.trial import CrashedError, LoadTimeoutError, MemoryLimitError, reason_of, try_bundle
from tests.fixtures.bundled import NEXT_WORD
from tests.support.hostile.bundles import HOSTILE_BUNDLES, make_bundle

OPTIONS = ReplicaOptions(
    devices=("cpu",),
    backend="onnx",
    threads=1,
    parallel_batches=1,
    max_batch_items=4,
    allow_cpu_fallback=False,
    map_weights=False,
)


def attempt(bundle, *, seconds=60.0, megabytes=2000, stopped=None, **options):
    with private_directory() as directory:
        found = try_bundle(
            bundle,
            directory,
            OPTIONS.model_copy(update=options),
            seconds=seconds,
            max_bytes=megabytes << 20,
            stopped=stopped or threading.Event(),
        )
        return found.relative_to(directory) if found.is_relative_to(directory) else found


def test_a_bundle_that_loads_is_copied():
    assert attempt(NEXT_WORD).parts == ("next-word", NEXT_WORD.name)


def test_a_bundle_whose_weights_are_mapped_stays_where_it_is():
    assert attempt(NEXT_WORD, map_weights=True) == NEXT_WORD


@pytest.mark.parametrize("name", ["a FIFO as manifest", "weights of another place"])
def test_an_invalid_bundle_is_refused_with_its_problems(tmp_path, name):
    spoil, problem = HOSTILE_BUNDLES[name]
    bundle = make_bundle(tmp_path, spoil)
    with pytest.raises(BundleError, match=problem) as caught:
        attempt(bundle)
    assert str(caught.value).startswith(f"{bundle}: ")
    assert reason_of(caught.value) == "invalid"


def test_a_graph_that_loops_is_ended(tmp_path):
    bundle = make_bundle(tmp_path, HOSTILE_BUNDLES["a graph that loops"][0])
    with pytest.raises(LoadTimeoutError, match=r"it did not load within 8 s \(--load-timeout\)") as caught:
        attempt(bundle, seconds=8)
    assert reason_of(caught.value) == "timeout"


@pytest.mark.parametrize("name", ["a graph with a constant of 3 GB", "a tokenizer that expands texts"])
def test_a_bundle_that_takes_too_much_memory_is_ended(tmp_path, name):
    bundle = make_bundle(tmp_path, HOSTILE_BUNDLES[name][0])
    with pytest.raises(MemoryLimitError, match="more than 500 MB of memory") as caught:
        attempt(bundle, megabytes=500)
    assert reason_of(caught.value) == "memory"


def test_an_unavailable_device_is_named():
    with pytest.raises(UnsupportedDeviceError, match="CUDAExecutionProvider"):
        attempt(NEXT_WORD, devices=("cuda",))


def test_without_room_for_a_process_nothing_is_tried(monkeypatch):
    def fail(*_, **options):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", fail)
    with pytest.raises(BundleError, match="no process can be started to try it: BlockingIOError"):
        attempt(NEXT_WORD)


def test_a_trial_ends_with_the_service(tmp_path):
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(BundleError, match="shutting down"):
        attempt(NEXT_WORD, stopped=stopped)


def python(tmp_path, script):
    """An interpreter in place of that of the trial."""
    (tmp_path / "python").write_text(f"#!{sys.executable}\n{script}")
    (tmp_path / "python").chmod(0o755)
    return str(tmp_path / "python")


@pytest.mark.parametrize(
    ("script", "kind", "problem"),
    [
        (f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})", CrashedError, "was ended by SIGSEGV"),
        ("raise SystemExit(3)", CrashedError, "ended with status 3"),
        ("", CrashedError, "ended with status 0"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", MemoryLimitError, "for lack of memory"),
    ],
)
def test_a_process_that_ends_by_itself_is_an_error_of_the_bundle(tmp_path, monkeypatch, script, kind, problem):
    monkeypatch.setattr(sys, "executable", python(tmp_path, script))
    with pytest.raises(kind, match=problem):
        attempt(NEXT_WORD)


def test_the_process_finds_the_modules_that_this_one_finds(tmp_path, monkeypatch):
    """And none of the current directory, where another `service` may lie."""
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "__init__.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert attempt(NEXT_WORD).parts == ("next-word", NEXT_WORD.name)
    assert os.getcwd() == str(tmp_path)
