"""The playground at `/`, the API reference at `/docs`, and the files that both load.

They hold nothing of a request, and need no key and no other address. All are static but the OpenAPI document of the API
reference, which has the operations of the models that are loaded.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from service.engine.served_models import ServedModels
from service.http.v1.operations import OPERATIONS
from service.web.reference import offered_document

__all__ = ["OPEN_PATHS", "web_router"]

OPEN_PATHS = re.compile(r"/web(/[a-z0-9][a-z0-9.-]*)+")
"""Paths of the files, which need no API key."""

_STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Media type of each suffix; other files, such as licences, are not served."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PLAYGROUND_POLICY = f"{_POLICY}; require-trusted-types-for 'script'; trusted-types 'none'"
"""No inline script or style, no other origin, and no text that is parsed as markup (Trusted Types, W3C)."""
_DOCS_POLICY = _POLICY.replace("img-src 'self'", "img-src 'self' data:")
"""Swagger UI's style sheet has its icons as `data:` addresses."""


@dataclass(frozen=True, slots=True)
class _File:
    """A static file, compressed with gzip, as it is sent to browsers."""

    compressed: bytes
    media_type: str
    tag: str
    """Its `ETag`, weak, for it is the same with and without compression."""

    def response(self, request: Request, policy: str = _POLICY) -> Response:
        """Return the file, or 304 where the client has it already (RFC 9110, section 13)."""
        headers = {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": policy,
            "ETag": self.tag,
            "Referrer-Policy": "no-referrer",
            "Vary": "Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
        }
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.compressed, headers=headers | {"Content-Encoding": "gzip"}, media_type=self.media_type)
        return Response(gzip.decompress(self.compressed), headers=headers, media_type=self.media_type)


@cache
def _files() -> Mapping[str, _File]:
    """Return the files by their paths below `static`; `.gz`, which large ones end in, is no part of the path."""
    paths = (path for path in sorted(_STATIC.rglob("*")) if Path(path.name.removesuffix(".gz")).suffix in _TYPES)
    return {path.relative_to(_STATIC).as_posix().removesuffix(".gz"): _read(path) for path in paths}


def _read(path: Path) -> _File:
    content = path.read_bytes()
    compressed = content if path.suffix == ".gz" else gzip.compress(content, mtime=0)
    tag = f'W/"{hashlib.sha256(compressed).hexdigest()[:16]}"'
    return _File(compressed, _TYPES[Path(path.name.removesuffix(".gz")).suffix], tag)


def web_router(*, playground: bool) -> APIRouter:
    """Return the routes of the pages and their files.

    `/` is the API reference too where there is no playground, for which the native endpoints must be served.
    """
    router, files = APIRouter(include_in_schema=False), _files()

    @router.api_route("/docs", methods=["GET", "HEAD"])
    def docs(request: Request) -> Response:
        return files["docs.html"].response(request, _DOCS_POLICY)

    @router.api_route("/", methods=["GET", "HEAD"])
    def root(request: Request) -> Response:
        return files["index.html"].response(request, _PLAYGROUND_POLICY) if playground else docs(request)

    @router.api_route("/web/openapi.json", methods=["GET", "HEAD"])
    def document(request: Request) -> Response:
        served_models: ServedModels = request.app.state.served_models
        offered = {name for served in list(served_models.served.values()) for name in served.model.offers}
        content = offered_document(request.app.openapi(), OPERATIONS, offered)
        return JSONResponse(content, headers={"Cache-Control": "no-cache"})

    @router.api_route("/web/{name:path}", methods=["GET", "HEAD"])
    def file(name: str, request: Request) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        return files[name].response(request)

    return router
