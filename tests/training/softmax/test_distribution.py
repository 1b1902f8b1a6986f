"""The distribution `softserve-softmax`: files of its wheel, its imports, and packages that it can be used with."""

import ast
import email
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "training" / "softmax"

LAYER = """
import softserve_softmax, torch
layer = softserve_softmax.GeneralizedSoftmax(5, 4, "lin, rbf")
loss = layer.loss(torch.ones(2, 4), torch.tensor([1, 2]))
loss.backward()
print(softserve_softmax.__file__, layer.log_prob(torch.ones(4)).exp().sum().item())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of the source distribution."""
    directory = tmp_path_factory.mktemp("wheel")
    _run(["-m", "hatchling", "build", "--target", "sdist", "--directory", directory], SOURCE)
    (archive,) = directory.iterdir()
    _run(["-m", "tarfile", "--extract", archive, directory], directory)
    source = directory / archive.name.removesuffix(".tar.gz")
    _run(["-m", "hatchling", "build", "--target", "wheel", "--directory", directory], source)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """A directory that the wheel is installed in."""
    directory = wheel.parent / "site"
    _run(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", directory, wheel], wheel.parent)
    return directory


def _run(arguments: list[object], directory: Path, *path: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(map(str, path))
    command = [sys.executable, *map(str, arguments)]
    finished = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def _package(directory: Path, name: str) -> None:
    (directory / name).mkdir(parents=True)
    (directory / name / "__init__.py").write_text(f"mine = {name!r}\n", encoding="utf-8")


def _used(site: Path, printed: str) -> bool:
    file, total = printed.split()
    return Path(file) == site / "softserve_softmax" / "__init__.py" and float(total) == pytest.approx(1.0)


def test_the_wheel_is_small_and_has_the_modules_under_one_name(wheel: Path) -> None:
    assert wheel.stat().st_size < 200_000
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = email.message_from_bytes(archive.read("softserve_softmax-0.1.0.dist-info/METADATA"))
    modules = {f"softserve_softmax/{path.name}" for path in SOURCE.glob("*.py")}
    others = {name for name in names if not name.startswith("softserve_softmax-0.1.0.dist-info/")}
    assert others == {*modules, "softserve_softmax/py.typed"}
    assert "softserve_softmax-0.1.0.dist-info/licenses/LICENSE" in names
    requirements = metadata.get_all("Requires-Dist")
    assert requirements is not None
    assert [each for each in requirements if "extra ==" not in each] == ["torch>=2.13"]


def test_licence_and_version_are_those_of_the_project() -> None:
    assert (SOURCE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    own, project = (tomllib.loads((each / "pyproject.toml").read_text())["project"] for each in (SOURCE, ROOT))
    assert own["version"] == project["version"]


def test_it_imports_torch_and_the_standard_library_alone(site: Path, tmp_path: Path) -> None:
    code = """
import sys, torch
before = set(sys.modules)
import importlib, pkgutil, softserve_softmax
for each in pkgutil.iter_modules(softserve_softmax.__path__):
    importlib.import_module(f"softserve_softmax.{each.name}")
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""
    assert set(_run(["-c", code], tmp_path, site).split()) <= {"softserve_softmax", "torch"}


@pytest.mark.parametrize("path", sorted(SOURCE.glob("*.py")), ids=lambda path: path.stem)
def test_modules_import_each_other_relatively_and_torch_alone(path: Path) -> None:
    """Imports inside of functions count; that of transformers is one of them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).partition(".")[0])
    optional = {"transformers"} if path.stem == "huggingface" else set()
    assert names - sys.stdlib_module_names <= {"torch"} | optional


@pytest.mark.parametrize("first", [True, False], ids=["installed first", "installed last"])
def test_it_works_with_other_packages_models_and_training(first: bool, site: Path, tmp_path: Path) -> None:
    for name in ("models", "training"):
        _package(tmp_path / "other", name)
    path = [site, tmp_path / "other"] if first else [tmp_path / "other", site]
    assert _used(site, _run(["-c", LAYER], tmp_path, *path))
    assert _run(["-c", f"{LAYER}\nimport models, training\nprint(models.mine)"], tmp_path, *path).endswith("models\n")


def test_it_works_in_a_folder_with_directories_models_and_training(site: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    _package(tmp_path, "training")
    assert _used(site, _run(["-c", LAYER], tmp_path, site))


def test_after_softserve_it_is_another_name_of_training_softmax(site: Path, tmp_path: Path) -> None:
    (tmp_path / "my_kernels.py").write_text(
        "from softserve_softmax import Kernel\n"
        "class Doubled(Kernel):\n"
        "    def score(self, products, classes, positions, hidden_size):\n"
        "        return 2 * products[0]\n",
        encoding="utf-8",
    )
    code = """
import training.softmax, softserve_softmax.mixture, my_kernels
assert softserve_softmax is training.softmax
assert softserve_softmax.mixture is training.softmax.mixture
print(type(training.softmax.build_kernel("my_kernels:Doubled")).__name__)
"""
    assert _run(["-c", code], tmp_path, site, ROOT) == "Doubled\n"
    assert _run(["-c", code], tmp_path, ROOT) == "Doubled\n"
    assert "training.softmax" in _run(["-c", "import training, softserve_softmax as s; print(s)"], tmp_path, site, ROOT)


def test_imported_before_softserve_it_is_another_copy_with_a_warning(site: Path, tmp_path: Path) -> None:
    code = """
import softserve_softmax, warnings
with warnings.catch_warnings(record=True) as caught:
    import training.softmax
assert softserve_softmax is not training.softmax
print(caught[0].message)
"""
    said = "softserve_softmax was imported before training: kernels derived from its classes are unknown to training.s"
    assert _run(["-c", code], tmp_path, site, ROOT).startswith(said)


def test_the_wheel_of_softserve_has_the_modules_without_their_project_file(tmp_path: Path) -> None:
    names = _run(["-c", SELECTED], ROOT).split()
    assert "training/softmax/mixture.py" in names
    assert {name for name in names if name.startswith("training/softmax/") and not name.endswith(".py")} == {
        "training/softmax/py.typed"
    }


SELECTED = """
from hatchling.builders.wheel import WheelBuilder
builder = WheelBuilder(".")
with builder.config.set_build_data({"artifacts": [], "force_include": {}, "build_hooks": ()}):
    print(*(file.distribution_path for file in builder.recurse_included_files()), sep="\\n")
"""
