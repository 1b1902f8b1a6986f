"""Imports and exports of the packages, and which modules know a task."""

import ast
import functools
import importlib
import subprocess
import sys
import warnings
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from models.tasks.registry import TASKS

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    path.relative_to(ROOT)
    for name in ("models", "service")
    for path in (ROOT / name).rglob("*.py")
    if not path.name.endswith("_pb2.py")  # made by the compiler of protocol buffers
)
TRAINING = sorted(path.relative_to(ROOT) for path in (ROOT / "training").rglob("*.py"))
TORCHSCRIPT = Path("models/backend/torchscript.py")

WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "training"):
            raise ModuleNotFoundError(f"{name} is not to be imported", name=name)

sys.meta_path.insert(0, NoTorch())
import models, service.server.app, service.cli
from service.settings import BUNDLED

store = models.ModelStore(BUNDLED)
print(store.load("next-word", threads=1).next_words(["Thank you very"], 1)[0].words[0].word)
try:
    store.load("next-word:4", backend="torchscript")
except models.UnsupportedDeviceError as error:
    print(error)
"""


@functools.cache
def tree(path):
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def exported(path):
    """Names in `__all__` of a module; None where it has none."""
    for node in tree(path).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["__all__"]:
            return ast.literal_eval(node.value)
    return None


def module_name(path):
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def test_the_service_runs_without_torch():
    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 0, finished.stderr
    word, error = finished.stdout.splitlines()
    assert word == "much"
    assert "install softserve[torchscript]" in error


def test_the_modules_are_found():
    assert len(MODULES) > 15
    assert TRAINING


def test_commands_of_training_start_without_libraries_that_take_seconds_to_import():
    code = "import sys, training.cli.commands; print(*{name.partition('.')[0] for name in sys.modules})"
    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    libraries = set(printed.split())
    assert {"torch", "pydantic"} < libraries
    assert not {"nltk", "onnx_ir", "onnxscript", "rouge_score", "scipy", "sklearn", "tensorboard"} & libraries


def test_no_modules_import_each_other_in_a_circle():
    """Imports inside of functions and for type checkers count, and those of `__init__.py`, unlike in pyproject.toml."""
    imports = grimp.build_graph("models", "service", "training", cache_dir=None)
    graph = {module: set(imports.find_modules_directly_imported_by(module)) for module in imports.modules}
    list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", [path for path in [*MODULES, *TRAINING] if exported(path) is not None], ids=str)
def test_exported_names_exist(path):
    names = exported(path)
    assert len(names) == len(set(names))
    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of former names
            module = importlib.import_module(module_name(path))
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        pytest.skip("needs ray, which is in another environment: make test-ray")
    assert [name for name in names if not hasattr(module, name)] == []


OF_TASKS = {Path(*task.__module__.split(".")).with_suffix(".py") for task in TASKS.values()}
"""The modules that register a task: no other one knows it."""
NEUTRAL = [path for path in MODULES if path not in OF_TASKS]


def task_names():
    """Names of the tasks, and of the classes that their modules define."""
    classes = {
        node.name
        for path in MODULES
        if path.parent == Path("models/tasks")
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and path.name not in ("model.py", "registry.py")
    }
    return set(TASKS.names()), classes


def knowledge_of_tasks(code, tasks, classes):
    """Yield the expressions of a module that depend on a particular task: its name, or `isinstance` on its class."""
    docstrings = {
        id(node.value) for node in ast.walk(code) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(code):
        if isinstance(node, ast.Constant) and node.value in tasks and id(node) not in docstrings:
            yield ast.unparse(node)
        called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if called in ("isinstance", "issubclass", "type"):
            named = {getattr(each, "id", getattr(each, "attr", "")) for each in ast.walk(node)}
            if named & (classes | {"Model"}):
                yield ast.unparse(node)
        compared = [node] if isinstance(node, ast.Compare) else [node.subject] if isinstance(node, ast.Match) else []
        if any(getattr(each, "attr", "") == "task" for part in compared for each in ast.walk(part)):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", NEUTRAL, ids=str)
def test_only_the_modules_of_a_task_know_it(path):
    assert list(knowledge_of_tasks(tree(path), *task_names())) == []


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(model, Translator)",
        "isinstance(model, models.Classifier | ImageClassifier)",
        "issubclass(kind, LanguageModel)",
        "type(model) is Generator or type(Generator)",
        "if manifest.task == name: pass",
        "names = {'translation': 1}",
        "match served.manifest.task:\n    case _: pass",
    ],
)
def test_knowledge_of_a_task_is_found(code):
    assert list(knowledge_of_tasks(ast.parse(code), *task_names()))


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "__init__.py"], ids=str)
def test_every_module_says_what_it_exports(path):
    assert exported(path)
