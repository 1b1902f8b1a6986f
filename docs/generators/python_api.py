"""The page of the Python API: the public names of `models` and `training.softmax`, and the results of their methods."""

import ast
import dataclasses
import inspect
import sys
import textwrap
import typing
from collections.abc import Iterator
from types import ModuleType

import models
import training.softmax
from docs.generators.markdown import cell, code, page, paragraphs, table
from models.tasks.model import Model

__all__ = ["python_page", "signature"]

_INTRODUCTION = """
`models` runs trained models and needs no torch; `training.softmax` has the output layers as PyTorch modules. Signatures
are those of the source, with shapes, units and errors in the descriptions.
"""
_PACKAGES = ("models.", "training.")
_WIDTH = 100


def python_page() -> str:
    """Return the page."""
    results: dict[type, None] = {}
    parts = [_INTRODUCTION]
    for module in (models, training.softmax):
        parts.append(f"## {module.__name__}\n\n{paragraphs(module.__doc__)}")
        for name in module.__all__:
            parts += _entry(name, getattr(module, name), module)
            _collect(getattr(module, name), results)
    parts.append("## Results\n\nFrozen dataclasses that the methods of models return.")
    parts += map(_result, results)
    return page("Python API", "the docstrings of models and training/softmax", parts)


def _entry(name: str, value: object, module: ModuleType) -> Iterator[str]:
    """Yield the description of a public name: a class with its methods, a function, or a constant."""
    if inspect.isclass(value):
        made = "" if issubclass(value, Model) else _definition(value.__init__, name)  # `ModelStore.load` makes models
        yield f"### {name}\n\n{made}\n\n{paragraphs(value.__doc__)}"
        for member, function in _methods(value):
            yield f"#### {name}.{member}\n\n{_definition(function, member)}\n\n{paragraphs(function.__doc__)}"
    elif inspect.isfunction(value):
        yield f"### {name}\n\n{_definition(value, name)}\n\n{paragraphs(value.__doc__)}"
    else:
        names = f" One of {', '.join(map(code, value))}." if isinstance(value, dict) else ""
        yield f"### {name}\n\n{paragraphs(_constant_doc(name, module))}{names}"


def _methods(kind: type) -> Iterator[tuple[str, typing.Any]]:
    """Yield the public methods and properties of a class and its bases in these packages.

    Those without a docstring are left out, and those that models have for servers.
    """
    seen = set(vars(Model)) if issubclass(kind, Model) else set()
    for base in kind.__mro__:
        if base.__module__.startswith(_PACKAGES):
            for name, member in vars(base).items():
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if inspect.isfunction(function) and not name.startswith("_") and name not in seen and function.__doc__:
                    seen.add(name)
                    yield name, function


def _definition(function: typing.Any, name: str) -> str:
    try:
        return f"```python\n{signature(function, name)}\n```"
    except TypeError:  # an exception without an initializer of its own
        return ""


def signature(function: typing.Any, name: str) -> str:
    """Return a function's signature as its source writes it, without `self`; raises `TypeError` where it has none."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        raise TypeError(f"{name} is no function")
    arguments = definition.args
    ordered = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(ordered) - len(arguments.defaults)) + list(arguments.defaults)
    listed = [_argument(*pair) for pair in zip(ordered, defaults, strict=True) if pair[0].arg not in ("self", "cls")]
    if arguments.vararg is not None or arguments.kwonlyargs:
        listed.append(f"*{_argument(arguments.vararg)}" if arguments.vararg else "*")
    listed += [_argument(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        listed.append(f"**{_argument(arguments.kwarg)}")
    result = "" if definition.returns is None or name[0].isupper() else f" -> {ast.unparse(definition.returns)}"
    line = f"{name}({', '.join(listed)}){result}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in listed), f"){result}"])


def _argument(argument: ast.arg, default: ast.expr | None = None) -> str:
    annotation = "" if argument.annotation is None else f": {ast.unparse(argument.annotation)}"
    equals = " = " if annotation else "="
    return f"{argument.arg}{annotation}" + ("" if default is None else f"{equals}{ast.unparse(default)}")


def _constant_doc(name: str, module: ModuleType) -> str:
    """Return the string below the assignment of a constant, in the module that a package imports it from."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            module = sys.modules[node.module or ""]
    return _attribute_docs(ast.parse(inspect.getsource(module))).get(name, "")


def _attribute_docs(node: ast.Module | ast.ClassDef) -> dict[str, str]:
    """Return the strings below assignments, by the assigned name."""
    found = {}
    for assignment, below in zip(node.body, node.body[1:], strict=False):
        target = assignment.targets[0] if isinstance(assignment, ast.Assign) else getattr(assignment, "target", None)
        if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[target.id] = inspect.cleandoc(str(below.value.value))
    return found


def _collect(value: object, found: dict[type, None]) -> None:
    """Add the dataclasses of these packages that the methods of a class return, and those of their fields."""
    if inspect.isclass(value) and value.__module__.startswith("models."):
        for _, function in _methods(value):
            _add(typing.get_type_hints(function).get("return"), found)


def _add(hint: object, found: dict[type, None]) -> None:
    for inner in typing.get_args(hint):
        _add(inner, found)
    if inspect.isclass(hint) and dataclasses.is_dataclass(hint) and hint not in found and not hasattr(hint, "parts"):
        found[hint] = None
        for field in typing.get_type_hints(hint).values():
            _add(field, found)


def _result(kind: type) -> str:
    definition = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(definition, ast.ClassDef)
    docs = _attribute_docs(definition)
    rows = [
        [code(node.target.id), code(ast.unparse(node.annotation)), cell(docs.get(node.target.id, ""))]
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    rows += [
        [code(name), code(signature(function, name).rpartition(" -> ")[2]), cell(function.__doc__ or "")]
        for name, function in _methods(kind)
        if isinstance(inspect.getattr_static(kind, name), property)
    ]
    return f"### {kind.__name__}\n\n{paragraphs(kind.__doc__)}\n\n{table(['field', 'type', 'meaning'], rows)}"
