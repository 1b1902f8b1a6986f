"""The interface of protocols: routes, the form of its errors, and where its clients put their key."""

import contextlib
import importlib
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI

from service.http.errors import ErrorForm
from service.settings import PROTOCOLS

__all__ = ["Protocol", "error_forms", "load_protocols"]


def _nothing(app: FastAPI) -> AbstractAsyncContextManager[None]:
    del app
    return contextlib.nullcontext()


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """An API that other services have too."""

    router: APIRouter
    prefixes: tuple[str, ...]
    """Paths and beginnings of paths that belong to it."""
    error: ErrorForm
    """Makes its answer to a request that failed."""
    key_in_body: bool = False
    """Whether a key may be in the body: `read_fields` then checks it."""
    open_paths: tuple[str, ...] = ()
    """Regular expressions of whole paths that need no key."""
    run: Callable[[FastAPI], AbstractAsyncContextManager[None]] = _nothing
    """A server or task that runs while the application does."""


def load_protocols(names: Iterable[str]) -> list[Protocol]:
    """Import protocols by name, in the order of the table, without `native`."""
    wanted = set(names)
    return [importlib.import_module(module).PROTOCOL for name, module in PROTOCOLS.items() if name in wanted]


def error_forms(protocols: Iterable[Protocol]) -> dict[str, ErrorForm]:
    """Return the form of errors of each prefix, longer prefixes first."""
    forms = {prefix: protocol.error for protocol in protocols for prefix in protocol.prefixes}
    return {prefix: forms[prefix] for prefix in sorted(forms, key=len, reverse=True)}
