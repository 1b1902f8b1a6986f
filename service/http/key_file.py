"""Files of API keys: a key on each line, or TOML with a name, a weight and limits for each key."""

import codecs
import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from models.operations.validation import errors_of, named_sentence
from service.engine.quotas import Limits
from service.engine.tenants import Tenant

__all__ = ["USER", "KeyFile", "KeyFileError", "key_identity", "read_key_file", "read_keys"]

USER = "user "
"""Beginning of the identifiers of users, before the name of their key."""
_SHORTEST = 16
"""Characters of a key; shorter ones can be guessed."""
_IDENTITY_LENGTH = 20
"""Hexadecimal digits of the identifier of a key: 80 bits, which tell keys apart."""
_TABLE = "[[keys]]"
"""A line by which a file is TOML: it is no key, for it is too short."""
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_MOST = 1 << 53
"""Largest limit: counters are double-precision numbers."""


class KeyFileError(ValueError):
    """A file of keys that cannot be used."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The keys of a file."""

    keys: Mapping[str, str]
    """The identifier of each key, which is the same after a restart, and whatever other keys there are."""
    tenants: tuple[Tenant, ...] = ()
    """Named keys, in the order of the file."""


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Quantity = Annotated[int, Field(ge=1, le=_MOST)]


class _Entry(BaseModel):
    """An entry of a TOML file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=_NAME)]
    key: Annotated[list[str], Field(min_length=1), BeforeValidator(_as_list)]
    weight: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    requests_per_minute: Quantity | None = None
    texts_per_minute: Quantity | None = None
    characters_per_minute: Quantity | None = None
    concurrent_texts: Quantity | None = None
    characters_per_day: Quantity | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    keys: Annotated[list[_Entry], Field(min_length=1)]


def key_identity(key: str) -> str:
    """Return an identifier of a key, from which the key cannot be computed: the beginning of its SHA-256 digest."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:_IDENTITY_LENGTH]


def read_key_file(path: Path) -> KeyFile:
    """Read a file of keys: TOML where it has a line `[[keys]]`, otherwise a key on each line.

    Raises the errors of `read_keys`, and `KeyFileError` for TOML with mistakes, and for a key or a name that two
    entries have. No error shows a key.
    """
    content = _content(path)
    if _TABLE not in map(str.strip, content.splitlines()):
        return KeyFile({key: key_identity(key) for key in _lines(path, content)})
    entries, keys = _entries(path, content), {}
    for place, entry in enumerate(entries, 1):
        if entry.name in [each.name for each in entries[: place - 1]]:
            raise KeyFileError(f"key file {path}: two entries have the name {entry.name}")
        for key in entry.key:
            _check(key, f"key file {path}, {entry.name}")
            if key in keys:
                raise KeyFileError(f"key file {path}, {entry.name}: the key is in the file twice")
            keys[key] = entry.name
    return KeyFile(keys, tuple(map(_tenant, entries)))


def read_keys(path: Path) -> list[str]:
    """Read a key from each line; empty lines and those that begin with `#` are ignored.

    Raises `FileNotFoundError` for a missing file, `KeyFileError` for one without keys or with one that is too short
    or not of visible ASCII characters. No error shows a key.
    """
    return _lines(path, _content(path))


def _content(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"key file {path} does not exist")
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8).decode("ascii")
    except UnicodeDecodeError:
        raise KeyFileError(f"key file {path}: keys are of ASCII characters") from None


def _lines(path: Path, content: str) -> list[str]:
    lines = enumerate(map(str.strip, content.splitlines()), 1)
    keys = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not keys:
        raise KeyFileError(f"key file {path} holds no key")
    for number, key in keys:
        _check(key, f"key file {path}, line {number}")
    return [key for _, key in keys]


def _check(key: str, place: str) -> None:
    if len(key) < _SHORTEST or not key.isprintable() or " " in key:
        raise KeyFileError(f"{place}: a key has {_SHORTEST} visible characters or more")


def _entries(path: Path, content: str) -> Sequence[_Entry]:
    try:
        return _File.model_validate(tomllib.loads(content)).keys
    except tomllib.TOMLDecodeError as error:
        raise KeyFileError(f"key file {path} is not TOML: {error}") from None
    except ValidationError as error:
        first = errors_of(error)[0]
        raise KeyFileError(f"key file {path}: {named_sentence(first, first['loc'])}") from None


def _tenant(entry: _Entry) -> Tenant:
    limits = Limits(**{each.name: getattr(entry, each.name) for each in fields(Limits)})
    return Tenant(id=f"{USER}{entry.name}", name=entry.name, weight=entry.weight, limits=limits)
