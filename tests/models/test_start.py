"""The commands in the folder of a project that has packages with the names of Softserve's."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("models", "service", "training")
COMMANDS = {
    "softserve": ("from softserve_start import serve; serve()", ["models"]),
    "softserve-train": ("from softserve_start import train; train()", ["corpora", "--help"]),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The directories that packages of an editable installation are found in."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "models" / "start.py", site / "softserve_start.py")
    return [site, ROOT]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('imported')\n", encoding="utf-8")
    return tmp_path


def start(command: str, directory: Path, path: list[Path]) -> tuple[int, str]:
    """Run a command in a directory, as a script in another one does: without that directory on Python's path."""
    code, arguments = COMMANDS[command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    line = [sys.executable, "-P", "-c", code, *arguments]
    finished = subprocess.run(line, cwd=directory, env=environment, capture_output=True, text=True, timeout=120)
    return finished.returncode, finished.stdout + finished.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_start_in_a_folder_with_packages_of_these_names(
    command: str, project: Path, installed: list[Path]
) -> None:
    code, said = start(command, project, installed)
    assert code == 0, said


@pytest.mark.parametrize("kind", ["package", "module", "namespace and module"])
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("softserve", "models"),
        ("softserve", "service"),
        ("softserve-train", "models"),
        ("softserve-train", "training"),
    ],
)
def test_a_package_that_comes_first_is_named_with_ours(
    command: str, name: str, kind: str, tmp_path: Path, installed: list[Path]
) -> None:
    other = tmp_path / name / "__init__.py" if kind == "package" else tmp_path / f"{name}.py"
    if kind != "module":
        (tmp_path / name).mkdir()
    other.write_text("raise AssertionError('imported')\n", encoding="utf-8")
    said = f"{other} hides the package {name} of Softserve, {ROOT / name / '__init__.py'}: rename it"
    assert start(command, tmp_path, [tmp_path, *installed]) == (1, f"{command}: {said}, or start Python elsewhere\n")


@pytest.mark.parametrize(("command", "name"), [("softserve", "training"), ("softserve-train", "service")])
def test_a_package_that_the_command_does_not_use_does_not_matter(
    command: str, name: str, project: Path, installed: list[Path]
) -> None:
    for each in set(NAMES) - {name}:
        shutil.rmtree(project / each)
    code, said = start(command, project, [project, *installed])
    assert code == 0, said


def test_a_folder_without_a_package_hides_none(project: Path, installed: list[Path]) -> None:
    for name in NAMES:
        (project / name / "__init__.py").unlink()
    code, said = start("softserve", project, [project, *installed])
    assert code == 0, said
