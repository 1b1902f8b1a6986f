"""The commands that need no server: one for each operation on texts that a task lists."""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro

from models.operations.operation import AnyOperation
from models.tasks.registry import listed_operations
from service.offline.asked import Asked
from service.offline.documents import DocumentFlags, document_format, run_document
from service.offline.glossary_file import read_glossary
from service.offline.options import FileOptions, ModelOptions, UsageError
from service.offline.running import run_file, run_texts

__all__ = ["command_of", "text_operations"]

File = Annotated[
    Path | None,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="[FILE]",
        help="""\
A file with a text on each line, by default standard input.""",
    ),
]
Texts = Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT...", help="Texts instead of a file.")]
FileInstead = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="FILE",
        help="""\
A file with a text on each line instead; - is standard input.""",
    ),
]
_Model = Annotated[ModelOptions, tyro.conf.OmitArgPrefixes]
_Files = Annotated[FileOptions, tyro.conf.OmitArgPrefixes]
_Documents = Annotated[DocumentFlags, tyro.conf.OmitArgPrefixes]
_OF_FILES = frozenset({"truncate"})
"""Parameters that are options of every command."""
_RENAMED = {"format": "text_format"}
"""Options of parameters whose name is that of another option."""
_GLOSSARIES = frozenset({"glossary"})
"""Parameters that commands read from a file."""
_GlossaryFile = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="FILE",
        help="""\
File of terms and the translations that must be used for them: two columns, separated by tabs, or by commas in a file
that ends in .csv. A * at the end of a translation lets its word go on, as in a plural.""",
    ),
]


def _parameters(operation: AnyOperation, arguments: dict[str, Any], files: FileOptions) -> dict[str, Any]:
    """Return the parameters of an operation by the arguments of its command."""
    found = dict(arguments)
    if "truncate" in operation.params.model_fields:
        found["truncate"] = files.truncate
    for name in _RENAMED.keys() & operation.params.model_fields.keys():
        found[name] = found.pop(_RENAMED[name])
    for name in _GLOSSARIES & found.keys():
        if found[name] is not None:
            found[name] = read_glossary(found[name])
    return found


def text_operations() -> Mapping[str, AnyOperation]:
    """Return the operations on texts that tasks list, by name."""
    return {each.name: each for each in listed_operations() if each.reads == "text"}


def command_of(operation: AnyOperation) -> Callable[..., int]:
    """Return the function of an operation's command, whose parameters are the command's arguments.

    An operation on whole texts reads files first; another one, such as on the beginning of a sentence, arguments.
    """
    whole = operation.input == "text"

    def command(model: ModelOptions, files: FileOptions, **arguments: Any) -> int:
        file = arguments.pop("file")
        texts: tuple[str, ...] = arguments.pop("text" if whole else operation.input)
        if not texts and file is None and not whole:
            raise UsageError(f"give a text: softserve {operation.name} {_example(operation)}, or --file")
        documents = arguments.pop("documents", DocumentFlags(document="off"))
        asked = Asked.of(operation, _parameters(operation, arguments, files))
        form = None if texts else document_format(None if file == Path("-") else file, documents)
        if form is not None:
            assert file is not None
            return run_document(asked, file, form, documents, model, files)
        if not texts:
            return run_file(asked, None if file == Path("-") else file, model, files)
        if file is not None:
            raise UsageError(f"give either texts on the command line, or the file {file}")
        return run_texts(asked, [_argument(text) for text in texts], model, files)

    parameters = _inputs(operation) | _options(operation)
    parameters |= {"model": (_Model, ModelOptions()), "files": (_Files, FileOptions())}
    if operation.in_documents is not None:
        parameters["documents"] = (_Documents, DocumentFlags())
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    command.__name__, command.__doc__ = operation.name.replace("-", "_"), _described(operation)
    command.__annotations__ = {name: annotation for name, (annotation, _) in parameters.items()} | {"return": int}
    vars(command)["__signature__"] = inspect.Signature(
        [inspect.Parameter(name, kind, default=given, annotation=form) for name, (form, given) in parameters.items()]
    )
    return command


def _inputs(operation: AnyOperation) -> dict[str, tuple[Any, Any]]:
    if operation.input == "text":
        return {"file": (File, None), "text": (Texts, ())}
    metavar = f"[{operation.input.upper()}...]"
    about = tyro.conf.arg(metavar=metavar, help=operation.describes_input)
    return {
        operation.input: (Annotated[tuple[str, ...], tyro.conf.Positional, about], ()),
        "file": (FileInstead, None),
    }


def _options(operation: AnyOperation) -> dict[str, tuple[Any, Any]]:
    """Return the annotation and the default of each parameter."""
    fields = operation.params.model_fields
    return {
        _RENAMED.get(name, name): (
            _GlossaryFile
            if name in _GLOSSARIES
            else Annotated[field.annotation, tyro.conf.arg(help=field.description)],
            operation.command_defaults.get(name, field.default),
        )
        for name, field in fields.items()
        if name not in _OF_FILES
    }


def _described(operation: AnyOperation) -> str:
    name, example = operation.name, _example(operation)
    if operation.input != "text":
        return f"{operation.summary}\n\nsoftserve {name} {example}"
    options = _needed(operation)
    file = f"softserve {name} texts.txt{options} --output results.jsonl"
    if operation.in_documents is not None:
        file += f"; softserve {name} report.docx{options} --output report.new.docx"
    return f"{operation.summary}\n\n{file}; softserve {name}{options} --text {example}"


def _needed(operation: AnyOperation) -> str:
    """Return the options without which the command is refused, with the values of the first example."""
    found = ""
    for name in operation.needed:
        value = operation.examples[0][name]
        values = value if isinstance(value, (list, tuple)) else [value]
        found += f" --{name.replace('_', '-')} " + " ".join(f'"{each}"' for each in values)
    return found


def _example(operation: AnyOperation) -> str:
    given = next((each[operation.input] for each in operation.examples), operation.input)
    return f'"{given if isinstance(given, str) else given[0]}"'  # type: ignore[index]


def _argument(text: str) -> str:
    """Return an argument as UTF-8 where the locale's encoding could not decode it."""
    try:
        return os.fsencode(text).decode() if re.search("[\udc80-\udcff]", text) else text
    except UnicodeDecodeError:
        return text
