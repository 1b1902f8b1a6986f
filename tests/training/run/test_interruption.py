"""Tests of SIGINT and SIGTERM, in processes of their own, and of modules that are hidden or not installed."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from tests.training.cli.test_cli import RECIPE
from training.run.interruption import Interrupted, SignalHold, received

ROOT = Path(__file__).parents[3]
LAUNCHER = """
import json, os, signal, sys, traceback
signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs ignore
import torch
from torch.utils import tensorboard
from training import cli
from training.cli import commands
torch.set_num_threads(1)
for line in sys.stdin:
    call = json.loads(line)
    if not (process := os.fork()):
        output = os.open(call["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1), os.dup2(output, 2)
        code = 1
        try:
            exec(call["before"])
            sys.argv = ["softserve-train", *call["arguments"]]
            cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""
"""Runs each command in a process of its own, forked after torch was imported, which takes seconds."""
SLOW_STEPS = """
import time
from training.run.loop import Trainer
step = Trainer._step
def slow(self, batch):
    print("step", self.progress.step, flush=True)
    time.sleep(0.05)
    return step(self, batch)
Trainer._step = slow
"""
SLOW_EVALUATION = """
import time
from training.tasks.language_model import LanguageModelTask
evaluate = LanguageModelTask.evaluate
def slow(self, batches, **flags):
    value = evaluate(self, batches, **flags)
    self._state = None
    print("evaluating", flush=True)
    time.sleep(60)
    return value
LanguageModelTask.evaluate = slow
"""
SLOW_EXPORT = """
import time
from training.run import export
def slow(*arguments, **others):
    print("exporting", flush=True)
    time.sleep(60)
export.to_onnx = slow
"""
MAIN = """
from training.cli import main
main()
"""
RUN = ("run", "recipe.yaml", "--data-dir", ".", "--device", "cpu")


class Launcher:
    """Runs commands of `softserve-train` in a directory."""

    def __init__(self, directory: Path) -> None:
        self._output = directory / "output"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{LAUNCHER}"],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, before: str, *arguments: str, at: str = "", number: int = 0) -> tuple[int, str]:
        """Run a command after some code; return exit status and output. `number` is sent at a line that begins `at`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._output.unlink(missing_ok=True)
        call = {"output": str(self._output), "before": before, "arguments": arguments}
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        process = int(self._process.stdout.readline())
        if number:
            self._wait_for(at)
            subprocess.run(["kill", f"-{number}", str(process)], check=True)
        code = int(self._process.stdout.readline())
        said = self._output.read_text(encoding="utf-8")
        assert "Traceback" not in said, said
        return code, said

    def _wait_for(self, at: str) -> None:
        until = time.monotonic() + 300
        while not (self._output.is_file() and f"\n{at}" in "\n" + self._output.read_text(encoding="utf-8")):
            assert time.monotonic() < until, self._output.read_text(encoding="utf-8")
            time.sleep(0.01)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with texts and a recipe."""
    path = tmp_path_factory.mktemp("interruption")
    lines = [" ".join(f"word{i * k % 8}" for k in range(1, 6)) + f" {i % 50}" for i in range(400)]
    (path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    data = {"files": {"train": "text.txt"}, "min_count": 1, "batch_tokens": 128}
    recipe = {**RECIPE, "data": data, "loop": {**RECIPE["loop"], "epochs": 2}}
    (path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    recipe["tune"] = {"parameters": {"loop.learning_rate": [0.01, 0.02]}}
    (path / "tune.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def launcher(directory: Path) -> Iterator[Launcher]:
    launcher = Launcher(directory)
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def interrupted(launcher: Launcher, directory: Path) -> Path:
    """A run that SIGINT interrupted in a step, SIGTERM in an evaluation, and that was then trained to its end."""
    code, said = launcher.run(SLOW_STEPS, *RUN, at="step 3", number=signal.SIGINT)
    assert code == 130
    saved = re.search(r"interrupted; epoch 1 of 2, step (\d+) is saved in runs/little: the same command resumes", said)
    assert saved is not None, said
    assert int(saved[1]) >= 4
    code, said = launcher.run(SLOW_EVALUATION, *RUN, at="evaluating", number=signal.SIGTERM)
    assert code == 143
    assert f"resuming at epoch 1 of 2, step {saved[1]}" in said
    assert re.search(r"interrupted; epoch 1 of 2, step \d+ is saved in runs/little", said)
    code, said = launcher.run("", *RUN)
    assert code == 0, said
    assert "resuming at epoch 1 of 2" in said
    return directory / "runs" / "little"


def test_an_interrupted_run_is_the_run_in_one_session(interrupted: Path, launcher: Launcher, directory: Path) -> None:
    code, said = launcher.run("", *RUN, "--runs", "whole")
    assert code == 0, said
    first, second = (
        torch.load(path / "last.pt", weights_only=True) for path in (interrupted, directory / "whole" / "little")
    )
    assert all(torch.equal(value, second["model"][name]) for name, value in first["model"].items())
    for one, other in zip(first["progress"]["history"], second["progress"]["history"], strict=True):
        assert (one["train_loss"], one["metric"]) == (other["train_loss"], other["metric"])


def test_an_interrupted_evaluation(interrupted: Path, launcher: Launcher) -> None:
    command = ("evaluate", str(interrupted), "--data-dir", ".", "--device", "cpu")
    code, said = launcher.run(SLOW_EVALUATION, *command, at="evaluating", number=signal.SIGINT)
    assert (code, said.splitlines()[-1]) == (130, "softserve-train: interrupted")


def test_an_interrupted_export_leaves_nothing(interrupted: Path, launcher: Launcher, directory: Path) -> None:
    command = ("export", str(interrupted), "--data-dir", ".", "--output", "models")
    code, said = launcher.run(SLOW_EXPORT, *command, at="exporting", number=signal.SIGTERM)
    assert (code, said.splitlines()[-1]) == (143, "softserve-train: interrupted")
    assert list((directory / "models").iterdir()) == []


def test_an_interrupted_search_continues(launcher: Launcher) -> None:
    command = ("tune", "tune.yaml", "--data-dir", ".", "--device", "cpu")
    code, said = launcher.run(SLOW_STEPS, *command, at="step 3", number=signal.SIGINT)
    assert code == 130
    assert "trial 0 was interrupted" in said
    assert "the same command continues the search in runs/little-tune" in said


def test_an_interruption_while_modules_are_imported(tmp_path: Path) -> None:
    """The signal reaches a process that has just been started."""
    reset = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    before = reset + WITHOUT_TORCH.replace(
        "raise", "print('importing', flush=True); import time; time.sleep(60); raise"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{before}{MAIN}", "corpora"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "softserve-train: interrupted\n")


# ---- SignalHold -------------------------------------------------------------------------------------------


@pytest.fixture
def none_received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The list of signals that this process got, for one test, in which it ignores none."""
    numbers: list[int] = []
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr("training.run.interruption._received", numbers)
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_is_held_back_and_another_one_is_not(
    none_received: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with SignalHold() as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.number == signal.SIGINT
        signal.raise_signal(signal.SIGINT)  # at once, as torchrun does
        signals._since = time.monotonic() - 2
        with pytest.raises(Interrupted, match="without saving") as caught:
            signal.raise_signal(signal.SIGTERM)
    assert caught.value.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is before
    assert none_received[-1] == received() == signal.SIGTERM
    assert "interrupt again to end without saving" in capfd.readouterr().err


@pytest.mark.usefixtures("none_received")
def test_a_released_signal_is_raised_at_once() -> None:
    with SignalHold() as signals:
        with pytest.raises(Interrupted), signals.released():
            signal.raise_signal(signal.SIGTERM)
        assert signals.number is None


# ---- start ------------------------------------------------------------------------------------------------

WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "rich", "yaml"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NoTorch())
"""


def _run(code: str, directory: Path, *arguments: str) -> tuple[int, str]:
    """Run code as `python -c` in a directory, in which modules are found first."""
    path = f"import sys\nsys.path.append({str(ROOT)!r})\n"
    command = [sys.executable, "-P", "-c", f"{path}sys.path.insert(0, '')\n{code}", *arguments]
    finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60)
    return finished.returncode, finished.stdout + finished.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("run", "recipe.yaml"), ("corpora",), ()], ids=str)
def test_without_torch_the_extra_is_named(arguments: tuple[str, ...], tmp_path: Path) -> None:
    code, said = _run(WITHOUT_TORCH + MAIN, tmp_path, *arguments)
    assert code == 1
    assert said.endswith("is not installed; training needs it: pip install 'softserve[train]'\n")
    assert said.splitlines()[:-1] in ([], [f"softserve-train {' '.join(arguments[:1])}: starting"])


def test_the_version_needs_no_torch(tmp_path: Path) -> None:
    code, said = _run(WITHOUT_TORCH + MAIN, tmp_path, "--version")
    assert code == 0
    assert re.fullmatch(r"softserve-train \d+\.\d+\.\d+\n", said)


@pytest.mark.parametrize(
    "code",
    ["from training.cli import main\nmain()", "from training.recipe import load_recipe", "import service.server.app"],
    ids=["softserve-train", "training", "service"],
)
def test_a_package_that_hides_ours_is_named(code: str, tmp_path: Path) -> None:
    own = tmp_path / "models" / "__init__.py"
    own.parent.mkdir()
    own.touch()
    status, said = _run(code, tmp_path, "corpora")
    assert status == 1
    assert f"{own} hides the package models of Softserve, {ROOT / 'models' / '__init__.py'}: rename it" in said
    assert said.count("Traceback") == (0 if "main" in code else 1)


def test_output_layers_work_with_another_package_models(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text("mine = 1", encoding="utf-8")
    code = "import models, training.softmax\nprint(models.mine, *training.softmax.KERNELS)"
    assert _run(code, tmp_path) == (0, "1 lin log pow pol rbf ssg mog hpb wav cos vmf\n")
