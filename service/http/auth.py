"""API-key authentication: keys from files, found by keyed digests."""

import hashlib
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from fastapi import HTTPException, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.errors import Failure, error_response
from service.http.key_file import USER, key_identity
from service.http.routes import route_path

__all__ = [
    "ADMIN_PREFIX",
    "KEY_HEADERS",
    "AuthMiddleware",
    "Guard",
    "Identity",
    "KeyRing",
    "administrators_only",
    "check_body_key",
    "identity_of",
    "needs_body_key",
    "require_administrator",
    "tenant_of",
]

ADMIN_PREFIX = "/v1/admin/"
"""Paths that need an administrator's key."""

_OPEN = {"/", "/docs", "/openapi.json", "/livez", "/readyz", "/health", "/metrics"}
"""Paths that need no key: probes, metrics, which hold no text, the playground and the API reference."""


class KeyRing:
    """Keys, of which only digests are kept."""

    def __init__(self, keys: Iterable[str] | Mapping[str, str]) -> None:
        """`keys` has the name of each key, by default an identifier that is made of its digest."""
        names = keys if isinstance(keys, Mapping) else {key: key_identity(key) for key in keys}
        self._secret = secrets.token_bytes()
        self._names = {self._digest(key): name for key, name in names.items()}

    def name(self, key: str) -> str | None:
        """Return the name of a key; None where it is not one of these.

        It is found by a digest with a secret of the process. So the time that this takes tells nothing about how
        similar a key is to one of these, and it is the same however many there are.
        """
        return self._names.get(self._digest(key))

    def _digest(self, key: str) -> bytes:
        return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), key=self._secret, digest_size=32).digest()


_IDENTITY = "identity"
"""Key of a request's state: who it is from."""

KEY_HEADERS = "Authorization: Bearer KEY, or X-API-Key: KEY"
"""The headers of a key, for messages."""
_DETAIL = f"a valid key is needed: {KEY_HEADERS}"
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(slots=True)
class Identity:
    """Who a request is from."""

    allowed: bool = False
    administrator: bool = False
    """Whether it carries an administrator's key."""
    tenant: str = ""
    """An identifier of the key that it carries; "" without one."""
    keys_in_body: KeyRing | None = None
    """Keys, one of which must be in the body."""


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

    def replace(self, users: KeyRing | None, administrators: KeyRing | None) -> None:
        """Accept other keys from now on, where keys are needed."""
        self._users = self._users and users
        self._administrators = self._administrators and administrators

    def identify(self, headers: Headers, path: str) -> "Identity":
        """Return who a request is from, and whether it is allowed; `path` is that which a router matches."""
        if self._users is None and self._administrators is None:
            return Identity(allowed=True)
        key = _key(headers)
        administrator, user = (
            None if key is None or ring is None else ring.name(key) for ring in (self._administrators, self._users)
        )
        found = Identity()
        if administrator is not None:
            found.administrator, found.tenant = True, f"administrator {administrator}"
        elif user is not None:
            found.tenant = USER + user
        if self._administrators is not None and path.startswith(ADMIN_PREFIX):
            found.allowed = administrator is not None
        elif administrator is not None or user is not None or self._users is None or path in _OPEN:
            found.allowed = True
        elif path in self._key_in_body and key is None:
            found.allowed, found.keys_in_body = True, self._users
        else:
            found.allowed = any(pattern.fullmatch(path) for pattern in self._more_open)
        return found

    def allows(self, scope: Scope) -> bool:
        """Return whether a request is allowed; its state says who it is from, for the functions below."""
        keys = self._users is not None or self._administrators is not None
        identity = self.identify(Headers(scope=scope), route_path(scope)) if keys else Identity(allowed=True)
        scope.setdefault("state", {})[_IDENTITY] = identity
        return identity.allowed


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


def identity_of(request: Request) -> Identity:
    """Return who a request is from: a caller without a key where `AuthMiddleware` has not seen it."""
    identity: Identity = request.scope.get("state", {}).get(_IDENTITY) or Identity()
    return identity


def needs_body_key(request: Request) -> bool:
    """Return whether `AuthMiddleware` has left a request's key to be found in its body."""
    return identity_of(request).keys_in_body is not None


def check_body_key(request: Request, key: str | None) -> None:
    """Refuse a request that needs a key in its body and has another one, or none."""
    identity = identity_of(request)
    users, identity.keys_in_body = identity.keys_in_body, None
    name = None if key is None or users is None else users.name(key)
    if name is None:
        raise HTTPException(401, _DETAIL, _CHALLENGE)
    identity.tenant = USER + name


def tenant_of(request: Request) -> str:
    """Return an identifier of the key that a request carries, the same after a restart; "" without one."""
    return identity_of(request).tenant


def require_administrator(is_administrator: bool) -> None:
    """Refuse a request without an administrator's key."""
    if not is_administrator:
        raise HTTPException(401, _DETAIL, _CHALLENGE)


async def administrators_only(request: Request) -> None:
    """Refuse a request that `AuthMiddleware` has not found an administrator's key in: a dependency of admin routes.

    It holds even where a path reaches such a route that the middleware does not know to be administrative.
    """
    require_administrator(identity_of(request).administrator)


def _key(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "deepl-auth-key"):
        return token.strip()
    return headers.get("x-api-key")
