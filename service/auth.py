"""API-key authentication: keys from files, compared in constant time."""

import codecs
import hashlib
import hmac
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from fastapi import HTTPException, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import Failure, error_response
from service.routes import route_path

__all__ = [
    "ADMIN_PREFIX",
    "KEY_HEADERS",
    "AuthMiddleware",
    "Guard",
    "KeyFileError",
    "KeyRing",
    "check_body_key",
    "needs_body_key",
    "read_keys",
    "require_administrator",
    "tenant_of",
]

ADMIN_PREFIX = "/v1/admin/"
"""Paths that need an administrator's key."""

_OPEN = {"/", "/docs", "/openapi.json", "/livez", "/readyz", "/health", "/metrics"}
"""Paths that need no key: probes, metrics, which hold no text, the playground and the API reference."""

_SHORTEST = 16
"""Characters of a key; shorter ones can be guessed."""


class KeyFileError(ValueError):
    """A file of keys that cannot be used."""


class KeyRing:
    """Keys, of which only digests are kept."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def place(self, key: str) -> int | None:
        """Return which of these a key is, in a time that depends neither on that nor on how similar it is."""
        digest = _digest(key)
        same = [hmac.compare_digest(digest, known) for known in self._digests]  # all of them
        return same.index(True) if sum(same) else None


def read_keys(path: Path) -> list[str]:
    """Read a key from each line; empty lines and those that begin with `#` are ignored.

    Raises `FileNotFoundError` for a missing file, `KeyFileError` for one without keys or with one that is too short
    or not of visible ASCII characters. No error shows a key.
    """
    if not path.is_file():
        raise FileNotFoundError(f"key file {path} does not exist")
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8).decode("ascii")
    except UnicodeDecodeError:
        raise KeyFileError(f"key file {path}: keys are of ASCII characters") from None
    lines = enumerate(map(str.strip, content.splitlines()), 1)
    keys = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not keys:
        raise KeyFileError(f"key file {path} holds no key")
    for number, key in keys:
        if len(key) < _SHORTEST or not key.isprintable() or " " in key:
            raise KeyFileError(f"key file {path}, line {number}: a key has {_SHORTEST} visible characters or more")
    return [key for _, key in keys]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


_ADMINISTRATOR = "administrator"
"""Key of a request's state that is set where the request carries an administrator's key."""
_TENANT = "tenant"
"""Key of a request's state: which of the keys the request carries."""
_UNKNOWN_KEY = "unknown_key"
"""Key of a request's state: the keys, one of which must be in the body."""

KEY_HEADERS = "Authorization: Bearer KEY, or X-API-Key: KEY"
"""The headers of a key, for messages."""
_DETAIL = f"a valid key is needed: {KEY_HEADERS}"
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class Guard:
    """Decides which requests are allowed: those on open paths, and those with a key that opens their path.

    A key comes as `Authorization: Bearer KEY` (RFC 6750), as `Authorization: DeepL-Auth-Key KEY`, or as
    `X-API-Key: KEY`; on the paths of a protocol whose clients put it into the body, `check_body_key` checks it.
    Without `users` no key is needed; administrative paths, where there are any, always need a key of
    `administrators`, which open the others too. The path is the one that the router matches; paths that are not known
    to be open are closed.
    """

    def __init__(
        self,
        *,
        users: KeyRing | None,
        administrators: KeyRing | None,
        key_in_body: Collection[str] = (),
        open_paths: Iterable[re.Pattern[str]] = (),
    ) -> None:
        """`key_in_body` are paths whose endpoints call `check_body_key`, `open_paths` more paths that need no key."""
        self._key_in_body, self._more_open = frozenset(key_in_body), tuple(open_paths)
        self._users = users
        self._administrators = administrators

    def allows(self, scope: Scope) -> bool:
        """Return whether a request is allowed; its state says what its key is, for the functions below."""
        state = scope.setdefault("state", {})
        for name in (_ADMINISTRATOR, _TENANT, _UNKNOWN_KEY):  # an application around this one may have set them
            state.pop(name, None)
        if self._users is None and self._administrators is None:
            return True
        key = _key(Headers(scope=scope))
        administrator, user = (
            None if key is None or ring is None else ring.place(key) for ring in (self._administrators, self._users)
        )
        if administrator is not None:
            state[_ADMINISTRATOR] = True
            state[_TENANT] = f"administrator {administrator}"
        elif user is not None:
            state[_TENANT] = f"user {user}"
        path = route_path(scope)
        if self._administrators is not None and path.startswith(ADMIN_PREFIX):
            return administrator is not None
        if administrator is not None or user is not None or self._users is None or path in _OPEN:
            return True
        if path in self._key_in_body and key is None:
            state[_UNKNOWN_KEY] = self._users
            return True
        return any(pattern.fullmatch(path) for pattern in self._more_open)


class AuthMiddleware:
    """Answers 401 to requests that are not allowed, before anything of their body is read."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._guard.allows(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            response = error_response(scope, Failure(401, _DETAIL, _CHALLENGE))
            await response(scope, receive, send)
        else:  # refuses the handshake of a WebSocket (ASGI specification, "Close - send event")
            await send({"type": "websocket.close", "code": 1008})


def needs_body_key(request: Request) -> bool:
    """Return whether `AuthMiddleware` has left a request's key to be found in its body."""
    return _UNKNOWN_KEY in request.scope["state"]


def check_body_key(request: Request, key: str | None) -> None:
    """Refuse a request that needs a key in its body and has another one, or none."""
    users: KeyRing = request.scope["state"].pop(_UNKNOWN_KEY)
    place = None if key is None else users.place(key)
    if place is None:
        raise HTTPException(401, _DETAIL, _CHALLENGE)
    request.scope["state"][_TENANT] = f"user {place}"


def tenant_of(request: Request) -> str:
    """Return a name for the key that a request carries, the same for all requests with this key; "" without one."""
    tenant: str = request.scope["state"].get(_TENANT, "")
    return tenant


async def require_administrator(request: Request) -> None:
    """Refuse a request that `AuthMiddleware` has not found an administrator's key in: a dependency of admin routes.

    It holds even where a path reaches such a route that the middleware does not know to be administrative.
    """
    if not request.scope.get("state", {}).get(_ADMINISTRATOR):
        raise HTTPException(401, _DETAIL, _CHALLENGE)


def _key(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "deepl-auth-key"):
        return token.strip()
    return headers.get("x-api-key")
