"""Registries of named values to which other packages can add."""

import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Generic, TypeVar

__all__ = ["Registry", "UnknownNameError"]

T = TypeVar("T")


class UnknownNameError(LookupError):
    """A name that no module and no installed package registers."""


class Registry(Generic[T]):
    """Values by name: those that the modules of one package register, and those of entry points.

    A distribution adds a value by an entry point of the registry's group, whose name is that of the value, or at run
    time by `register`. Modules are imported at the first lookup, so that they may import the registry themselves.
    """

    def __init__(self, package: str, noun: str, *, group: str | None = None) -> None:
        """Create a registry; `package` holds the modules, and `noun` describes a value in errors.

        `group` is the group of the entry points, `softserve.<package>` by default.
        """
        self.group = group or f"softserve.{package}"
        self._package, self._noun = package, noun
        self._values: dict[str, T] = {}
        self._complete = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a value; raises `ValueError` for a name that is taken."""

        def decorate(value: T) -> T:
            if self._values.setdefault(name, value) is not value:
                raise ValueError(f"{self._noun} {name!r} is registered twice")
            return value

        return decorate

    def __getitem__(self, name: str) -> T:
        """Return the value of a name; raises `UnknownNameError`, which lists the known names."""
        if name not in self._values:
            self._import_all()
        if name not in self._values:
            known = ", ".join(sorted(self._values))
            raise UnknownNameError(
                f"unknown {self._noun} {name!r}; known: {known}; packages add others by the entry points {self.group}"
            )
        return self._values[name]

    def names(self) -> list[str]:
        """Return all names, sorted."""
        self._import_all()
        return sorted(self._values)

    def values(self) -> list[T]:
        """Return all values, in the order of their names."""
        return [self[name] for name in self.names()]

    def _import_all(self) -> None:
        if self._complete:
            return
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
            importlib.import_module(module.name)
        for entry in entry_points(group=self.group):
            value = entry.load()  # its module may register it by itself
            if entry.name not in self._values:
                self._values[entry.name] = value
        self._complete = True
