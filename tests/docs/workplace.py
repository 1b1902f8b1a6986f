"""A directory in which the blocks of pages are run as a reader would run them."""

import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks
from tests.service.process import Process

__all__ = ["Workplace", "run_page", "workplace"]

_NOT_RUN = ("make test", "python3 -m venv .venv", ".venv/bin/pip install ")
"""The tests, which run this, and installations: everything is installed, but for packages of the reader's own."""
_SERVERS = ("make serve", ".venv/bin/softserve serve")
_TRAIN = ".venv/bin/softserve-train "


class _Server(Process):
    """A command of a page that serves, on a free port; its settings come from the environment."""

    def __init__(self, command: str, directory: Path, environment: dict[str, str]) -> None:
        self.log, self.command = directory / "server.txt", command
        settings = {"PORT": "0", "SOFTSERVE_PORT": "0", "SOFTSERVE_THREADS": "1"}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=directory,
                env={**environment, **settings},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        while not self.ready():
            time.sleep(0.05)

    def stop(self) -> None:
        """End the service; make ends with it."""
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(30)


class Workplace:
    """A copy of the repository in which everything is installed: links to its files, and a virtual environment."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.server = directory, None
        for name in ("Makefile", "constraints.txt", "models", "pyproject.toml", "training"):
            (directory / name).symlink_to(ROOT / name)
        virtual = directory / ".venv"
        virtual.mkdir()
        for path in Path(sys.prefix).iterdir():
            if path.name not in (".serve", ".test"):
                (virtual / path.name).symlink_to(path)
        for done in (".serve", ".test"):
            (virtual / done).touch()  # newer than the requirements: make installs nothing
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("SOFTSERVE_", "PYTEST_", "MAKE"))
        }
        self.environment = {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        self._packages = False

    def close(self) -> None:
        """Stop the server, if there is one."""
        if self.server is not None:
            self.server.stop()
            self.server = None

    def serve(self, command: str) -> None:
        """Start a server in place of the one that runs, unless that is of the same command."""
        if self.server is None or self.server.command != command:
            self.close()
            self.server = _Server(command, self.directory, self.environment)

    def run(self, block: Block, *, compared: bool = True) -> str | None:
        """Run a block and compare its answer with that of the page; return the output, None where it is not run."""
        file = block.option("file")
        if file is not None:
            (self.directory / file).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / file).write_text(self._addressed(block.code), encoding="utf-8")
            return None
        if block.language not in ("sh", "python"):
            return None
        if block.language == "sh":
            found = self._shell(block)
        else:
            found = self._finished([str(self.directory / ".venv/bin/python"), "-c", self._addressed(block.code)])
        if compared and block.answer is not None:
            problem = block.answer.refuses(found)
            assert problem is None, f"{block.answer.place}: {problem}"
        return found

    def _shell(self, block: Block) -> str:
        """Run a block of shell commands: a server in the background, training in this process, others by bash."""
        lines = block.code.replace("\\\n", " ").splitlines()
        special = (*_SERVERS, *_NOT_RUN, _TRAIN)
        if not any(line.startswith(special) for line in lines):
            return self._finished(["bash", "-euo", "pipefail", "-c", self._addressed(block.code)])
        return "".join(self._command(line.partition(" # ")[0].strip(), block.options) for line in lines)

    def _command(self, command: str, options: str) -> str:
        if command.startswith(_NOT_RUN):
            self._install(shlex.split(command))
            return ""
        if command.startswith(_SERVERS):
            self.serve(command)
            return ""
        if command.startswith(f"{_TRAIN}run "):
            command = f"{command} {options}"
        if command.startswith(_TRAIN) and not self._packages:
            return self._train(shlex.split(command)[1:])
        return self._finished(["bash", "-euo", "pipefail", "-c", f"exec {self._addressed(command)}"])

    def _install(self, command: list[str]) -> None:
        """Make a package of the reader's own known, as `pip install -e DIRECTORY` would, by its entry points.

        The output layers are installed by pip, of the checkout: the distribution differs from the modules here.
        """
        directory = self.directory / command[-1]
        if directory == self.directory / "training" / "softmax":
            site = self.directory / "site"
            offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(site), str(directory)]
            self._finished([str(self.directory / ".venv/bin/python"), "-m", "pip", "install", "--quiet", *offline])
            self.environment["PYTHONPATH"] = f"{site}{os.pathsep}{ROOT}"
            return
        if command[0] != ".venv/bin/pip" or not (directory / "pyproject.toml").is_file() or command[-1] == ".":
            return
        project = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        info = directory / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
        groups = (
            [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
            for group, points in project["entry-points"].items()
        )
        (info / "entry_points.txt").write_text("\n".join(line for group in groups for line in group), encoding="utf-8")
        self.environment["PYTHONPATH"] = f"{directory}{os.pathsep}{ROOT}"
        self._packages = True  # entry points are found when a process starts

    def _train(self, arguments: list[str]) -> str:
        """Run `softserve-train` in this process, where torch is imported already."""
        from training.cli import main  # torch, which not every page needs

        output = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(output),
            contextlib.chdir(self.directory),
        ):
            patch.setattr(sys, "argv", ["softserve-train", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
        assert not ended.value.code, f"{arguments}: {ended.value.code}\n{output.getvalue()}"
        return output.getvalue()

    def _finished(self, command: list[str]) -> str:
        finished = subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert finished.returncode == 0, f"{command[-1]}\n{finished.stdout}{finished.stderr}"
        return finished.stdout

    def _addressed(self, code: str) -> str:
        """Return code that calls the server's own port."""
        if "127.0.0.1:8000" not in code:
            return code
        assert self.server is not None, f"no server runs for: {code}"
        return code.replace("127.0.0.1:8000", self.server.address.removeprefix("http://"))


@contextlib.contextmanager
def workplace(directory: Path) -> Iterator[Workplace]:
    """Make a workplace, and stop its server in the end."""
    place = Workplace(directory)
    try:
        yield place
    finally:
        place.close()


def run_page(page: str, directory: Path) -> None:
    """Run the blocks of a page in a workplace of their own, and compare their answers."""
    with workplace(directory) as place:
        for block in blocks(page):
            place.run(block)
