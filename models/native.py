"""Failures of native code that a model runs, such as its tokenizer: errors of this package."""

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from models.errors import NativeError

__all__ = ["native_errors"]

_PANIC = ("pyo3_runtime", "PanicException")
"""The class of a panic in Rust: every library has one of its own, which cannot be imported."""


Given = ParamSpec("Given")
Result = TypeVar("Result")


class _NativeErrors:
    """A context and a decorator that cost little: a short text is tokenized in 15 microseconds."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __call__(self, function: Callable[Given, Result]) -> Callable[Given, Result]:
        @functools.wraps(function)
        def checked(*positional: Given.args, **named: Given.kwargs) -> Result:
            try:
                return function(*positional, **named)
            except BaseException as error:
                self.__exit__(type(error), error, None)
                raise

        return checked

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None and (kind is Exception or (kind.__module__, kind.__name__) == _PANIC):
            raise NativeError(f"{self._what} failed: {kind.__name__}: {error}") from error


def native_errors(what: str = "the tokenizer") -> _NativeErrors:
    """Turn a panic of a library in Rust, and an error of no class but `Exception`, into a `NativeError`.

    A panic is no `Exception`: it would pass by every handler, and end a task that runs forever. The library tokenizers
    panics for instance where a regular expression takes too many steps. `what` is the subject of the message. The
    result is a context manager and a decorator.
    """
    return _NativeErrors(what)
