"""The page of the Python API: the public names of `models` and `training.softmax`, and the results of their methods."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import griffe

from docs.generators.markdown import cell, code, page, paragraphs, table

__all__ = ["python_page", "signature"]

_INTRODUCTION = """
`models` runs trained models and needs no torch; `training.softmax` has the output layers as PyTorch modules. Signatures
are those of the source, with shapes, units and errors in the descriptions.
"""
_MODULES = ("models", "training.softmax", "training.softmax.parallel", "training.softmax.huggingface")
_MODEL = "models.tasks.model.Model"
"""The base class of models, which `ModelStore.load` makes, and whose own methods are for servers."""
_WIDTH = 100


def python_page() -> str:
    """Return the page."""
    loader = griffe.GriffeLoader(search_paths=[Path(__file__).parents[2]])
    modules = [loader.load(name) for name in _MODULES]
    results: dict[str, griffe.Class] = {}
    parts = [_INTRODUCTION]
    for module in modules:
        parts.append(f"## {module.path}\n\n{_doc(_target(module))}")
        for name in map(str, module.exports or ()):
            value = _target(module[name])
            parts += _entry(name, value)
            if value.path.startswith("models.") and isinstance(value, griffe.Class):
                for method in _methods(value):
                    _add(_returned(method), loader, results)
    parts.append("## Results\n\nFrozen dataclasses that the methods of models return.")
    parts += map(_result, results.values())
    return page("Python API", "the docstrings of models and training/softmax", parts)


def _target(value: griffe.Object | griffe.Alias) -> griffe.Object:
    return value.final_target if isinstance(value, griffe.Alias) else value


def _doc(value: griffe.Object) -> str:
    return paragraphs(value.docstring.value if value.docstring else None)


def _entry(name: str, value: griffe.Object) -> Iterator[str]:
    """Yield the description of a public name: a class with its methods, a function, or a constant."""
    if isinstance(value, griffe.Class):
        made = None if _is_model(value) else value.all_members.get("__init__")
        yield f"### {name}\n\n{_definition(_target(made), name) if made else ''}\n\n{_doc(value)}"
        for method in _methods(value):
            yield f"#### {name}.{method.name}\n\n{_definition(method, method.name)}\n\n{_doc(method)}"
    elif isinstance(value, griffe.Function):
        yield f"### {name}\n\n{_definition(value, name)}\n\n{_doc(value)}"
    else:
        known = getattr(importlib.import_module(value.module.path), name)
        names = f" One of {', '.join(map(code, known))}." if isinstance(known, dict) else ""
        yield f"### {name}\n\n{_doc(value)}{names}"


def _is_model(kind: griffe.Class) -> bool:
    return any(base.path == _MODEL for base in kind.mro())


def _methods(kind: griffe.Class) -> Iterator[griffe.Object]:
    """Yield the public methods and properties of a class and its bases in these packages.

    Those without a docstring are left out, and those that models have for servers.
    """
    seen = {name for base in kind.mro() if base.path == _MODEL for name in base.members}
    for base in (kind, *kind.mro()):
        for name, member in base.members.items():
            called = member.is_function or "property" in member.labels
            if called and not name.startswith("_") and name not in seen and member.docstring:
                seen.add(name)
                yield _target(member)


def _returned(function: griffe.Object) -> str | griffe.Expr | None:
    return function.returns if isinstance(function, griffe.Function) else getattr(function, "annotation", None)


def _definition(function: griffe.Object, name: str) -> str:
    return f"```python\n{signature(function, name)}\n```"


def signature(function: griffe.Object, name: str) -> str:
    """Return the signature of a function or property as its source writes it, without `self`."""
    returned = _returned(function)
    result = "" if returned is None or name[0].isupper() else f" -> {returned}"
    if not isinstance(function, griffe.Function):
        return f"{name}(){result}"
    line = function.signature(return_type=False, name=name) + result
    if len(line) <= _WIDTH:
        return line
    listed = _parts(line[len(name) + 1 : -len(result) - 1])
    return "\n".join([f"{name}(", *(f"    {each}," for each in listed), f"){result}"])


def _parts(listed: str) -> list[str]:
    """Return the parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for character in listed:
        depth += (character in "[(") - (character in "])")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _add(hint: str | griffe.Expr | None, loader: griffe.GriffeLoader, found: dict[str, griffe.Class]) -> None:
    """Add the dataclasses of these packages that a type names, and those that their fields name."""
    for each in hint.iterate() if isinstance(hint, griffe.Expr) else ():
        if isinstance(each, griffe.ExprName) and each.canonical_path.startswith("models."):
            kind = _target(loader.modules_collection[each.canonical_path])
            if not isinstance(kind, griffe.Class) or kind.path in found or "dataclass" not in kind.labels:
                continue
            if "parts" not in kind.all_members:  # which a query has, and no result
                found[kind.path] = kind
                for field in kind.attributes.values():
                    _add(field.annotation, loader, found)


def _result(kind: griffe.Class) -> str:
    fields = [each for each in kind.attributes.values() if each.annotation and "property" not in each.labels]
    properties = [each for each in _methods(kind) if "property" in each.labels]
    rows = [[code(each.name), code(_returned(each)), cell(_doc(each))] for each in (*fields, *properties)]
    return f"### {kind.name}\n\n{_doc(kind)}\n\n{table(['field', 'type', 'meaning'], rows)}"
