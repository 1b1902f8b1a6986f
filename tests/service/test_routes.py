"""The route that a path leads to, with and without a prefix, and the keys that it needs."""

import contextlib

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.websockets import WebSocketDisconnect

from service.http.routes import allowed_methods, endpoint_of, nearest_paths, route_path, serving_path
from service.server.app import create_app
from service.settings import Settings

USER, ADMIN = "user-key-of-some-length", "admin-key-of-some-length"
BODY = {"context": "thank you", "top_k": 1}


class Prefixed:
    """An application as a server with `--root-path` calls it: the prefix is part of the path."""

    def __init__(self, app, prefix):
        self._app, self._prefix = app, prefix

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            scope["root_path"], scope["path"] = self._prefix, self._prefix + scope["path"]
        await self._app(scope, receive, send)


def mounted(app, prefix):
    """An application in another one, which runs its lifespan."""

    @contextlib.asynccontextmanager
    async def lifespan(outer):
        async with app.router.lifespan_context(app):
            yield

    return Starlette(routes=[Mount(prefix, app)], lifespan=lifespan)


def app_in(directory):
    """Make the service without models, with keys for all and others for administrators; it can be started once."""
    for name, key in (("users", USER), ("administrators", ADMIN)):
        (directory / name).write_text(key)
    (directory / "models").mkdir()
    return create_app(
        Settings(
            model_dirs=(directory / "models",),
            api_keys=directory / "users",
            admin_keys=directory / "administrators",
        )
    )


@pytest.fixture(scope="module", params=["plain", "root path", "root path of an open path", "mounted"])
def kind(request):
    """How the service is reached. A fixture of its own, so that each has an application, which can be started once."""
    return request.param


@pytest.fixture(scope="module")
def app(kind, tmp_path_factory):
    return app_in(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def client(kind, app):
    """The service behind no prefix, and behind several; paths are those that clients of the service ask for."""
    if kind == "mounted":
        with TestClient(mounted(app, "/mounted"), base_url="http://testserver/mounted") as made:
            yield made
        return
    prefix = {"plain": "", "root path": "/v1", "root path of an open path": "/livez"}[kind]
    with TestClient(Prefixed(app, prefix)) as made:
        yield made


def url(client, path):
    """Return the whole address, for a client takes the part after two slashes for a host."""
    return str(client.base_url).rstrip("/") + path


ADMIN_PATHS = [
    "/v1/admin/models/next-word/unload",
    "/v1/admin/models/next-word/unload/",
    "/v1/admin/models/next-word/load",
    "/v1%2Fadmin/models/next-word/unload",
    "/v1/admin%2fmodels/next-word/unload",
    "/%761/admin/models/next-word/unload",
    "//v1/admin/models/next-word/unload",
    "/v1//admin/models/next-word/unload",
    "/v1/admin//models/next-word/unload",
    "/V1/Admin/models/next-word/unload",
    "/livez/../v1/admin/models/next-word/unload",
    "/livez/%2e%2e/v1/admin/models/next-word/unload",
    "/docs/%2e%2e%2fv1/admin/models/next-word/unload",
    "/v1/v1/admin/models/next-word/unload",
    "/livez/v1/admin/models/next-word/unload",
    "/mounted/v1/admin/models/next-word/unload",
]


@pytest.mark.parametrize("path", ADMIN_PATHS)
@pytest.mark.parametrize("method", ["POST", "GET", "HEAD", "OPTIONS", "PUT"])
@pytest.mark.parametrize("key", [None, USER])
def test_no_admin_endpoint_is_reached_without_an_administrators_key(client, app, monkeypatch, path, method, key):
    calls = []
    for name in ("add", "remove"):
        monkeypatch.setattr(app.state.served_models, name, calls.append)
    response = client.request(
        method, url(client, path), headers={"X-API-Key": key} if key else {}, follow_redirects=False
    )
    assert calls == []
    assert response.status_code in ({401} if key is None else {401, 404})


def test_an_administrators_key_opens_the_admin_endpoints(client):
    path = "/v1/admin/models/next-word/unload"
    response = client.post(path, headers={"Authorization": f"Bearer {ADMIN}"})
    assert (response.status_code, "unknown model" in response.text) == (404, True)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/next-word",
        "/v1/next-word/",
        "/v1%2Fnext-word",
        "//v1/next-word",
        "/v1//next-word",
        "/V1/NEXT-WORD",
        "/livez/../v1/next-word",
        "/livez/%2e%2e/v1/next-word",
        "/metrics%2f..%2fv1/next-word",
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "HEAD", "OPTIONS"])
def test_no_model_endpoint_is_reached_without_a_key(client, path, method):
    response = client.request(method, url(client, path), json=BODY, follow_redirects=False)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"


def test_a_key_opens_the_model_endpoints(client):
    response = client.post("/v1/next-word", json=BODY, headers={"X-API-Key": USER})
    assert (response.status_code, "loaded" in response.text) == (503, True)


@pytest.mark.parametrize("path", ["/livez", "/metrics", "/docs", "/openapi.json"])
def test_open_paths_need_no_key(client, path):
    assert client.get(path).status_code == 200


def test_readiness_needs_no_key(client):
    """The service has no models, and is therefore not ready."""
    assert client.get("/readyz").status_code == 503


@pytest.mark.parametrize("path", ["/LIVEZ", "//livez", "/livez/", "/metrics/x", "/docs%2f", "/livez%00"])
def test_paths_that_are_only_like_open_ones_are_closed(client, path):
    assert client.get(url(client, path), follow_redirects=False).status_code == 401


def test_an_admin_route_is_closed_on_a_path_that_the_middleware_does_not_know(tmp_path, monkeypatch):
    (tmp_path / "keys").write_text(ADMIN)
    monkeypatch.setattr("service.http.auth.ADMIN_PREFIX", "/elsewhere/")
    client = TestClient(create_app(Settings(admin_keys=tmp_path / "keys")), raise_server_exceptions=False)
    path = "/v1/admin/models/nowhere/unload"
    assert client.post(path).status_code == 401
    assert client.post(path, headers={"X-API-Key": "x" * 16}).status_code == 401
    assert client.post(path, headers={"X-API-Key": ADMIN}).status_code == 404


def test_a_websocket_needs_a_key_too(app):
    with pytest.raises(WebSocketDisconnect), TestClient(app).websocket_connect("/v1/next-word"):
        pass


# ---- the label of a refused request ----


@pytest.mark.parametrize(
    ("method", "path", "endpoint"),
    [
        ("POST", "/v1/next-word", "/v1/next-word"),
        ("GET", "/v1/next-word", "/v1/next-word"),
        ("GET", "/v1/models/secret", "/v1/models/{name}"),
        ("POST", "/v1/admin/models/secret/load", "/v1/admin/models/{name}/load"),
        ("GET", "/nowhere", "unmatched"),
        ("GET", "/v1/next-word/", "unmatched"),
    ],
)
def test_a_refused_request_is_counted_under_the_route_that_it_would_have_had(client, metric, method, path, endpoint):
    labels = {"endpoint": endpoint, "status": "401"}
    before = metric(client, "softserve_requests_total", **labels)
    assert client.request(method, path, follow_redirects=False).status_code == 401
    assert metric(client, "softserve_requests_total", **labels) == before + 1


def test_a_body_that_is_too_large_is_counted_under_its_route(client, metric):
    labels = {"endpoint": "/v1/next-word", "status": "413"}
    before = metric(client, "softserve_requests_total", **labels)
    response = client.post("/v1/next-word", content=b"a" * (1 << 21), headers={"X-API-Key": USER})
    assert (response.status_code, response.headers["connection"]) == (413, "close")
    assert metric(client, "softserve_requests_total", **labels) == before + 1


def test_a_refusal_before_the_body_closes_the_connection(client):
    assert client.post("/v1/next-word", json=BODY).headers["connection"] == "close"
    assert "connection" not in client.get("/v1/models").headers


def test_what_has_no_application_and_no_route_is_unmatched():
    assert endpoint_of({}) == "unmatched"


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [("", "/a", "/a"), ("/p", "/p/a", "/a"), ("/p", "/pa", "/pa"), ("/p", "/a", "/a"), ("/p", "/p", "")],
)
def test_the_prefix_is_no_part_of_the_path(root, path, expected):
    assert route_path({"root_path": root, "path": path}) == expected


def test_the_route_of_an_included_router_has_its_prefix():
    app, inner = FastAPI(), create_app(Settings()).router
    app.include_router(inner)
    scope = {"type": "http", "app": app, "path": "/v1/score", "method": "POST"}
    assert endpoint_of(scope) == "/v1/score"


# ---- paths and methods ----


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("/v1/clasify", "/v1/classify"),
        ("/v1/nextword", "/v1/next-word"),
        ("/v2/model", "/v2/models"),
        ("/x" * 60, None),
    ],
)
def test_a_path_that_is_not_served_has_similar_ones(app, path, nearest):
    found = nearest_paths({"type": "http", "method": "GET", "path": path, "root_path": "", "app": app})
    assert (found[:1] or [None]) == [nearest]


@pytest.mark.parametrize(
    ("path", "methods"), [("/v1/classify", ["POST"]), ("/livez", ["GET", "HEAD"]), ("/v1/models", ["GET", "HEAD"])]
)
def test_a_path_has_its_methods(app, path, methods):
    scope = {"type": "http", "method": "PUT", "path": path, "root_path": "", "app": app}
    assert allowed_methods(scope) == methods


def test_an_operation_has_its_path(app):
    found = [serving_path(app, name) for name in ("classify", "generate", "next-word", "fly")]
    assert found == ["/v1/classify", "/v1/generate-text", "/v1/next-word", None]


@pytest.mark.parametrize(
    ("method", "path", "status", "words", "allow"),
    [
        ("GET", "/v1/classify", 405, "/v1/classify is served with POST, not with GET", "POST"),
        ("PUT", "/v2/models/a", 405, "/v2/models/{model} is served with GET, HEAD, not with PUT", "GET, HEAD"),
        ("PUT", "/predict", 405, "/predict is served with POST, not with PUT", "POST"),
        ("POST", "/v1/clasify", 404, "there is no such path; similar: /v1/classify", None),
        ("GET", "/v2/model", 404, "there is no such path; similar: /v2/models", None),
        ("GET", "/nothing/of/it", 404, "there is no such path; similar: none; GET /openapi.json", None),
    ],
)
def test_paths_and_methods_that_are_not_served_are_answered_with_those_that_are(
    client, method, path, status, words, allow
):
    response = client.request(method, url(client, path), headers={"X-API-Key": USER})
    assert (response.status_code, response.headers.get("allow")) == (status, allow)
    found = response.json()
    assert words in found.get("detail", "") + str(found.get("error", ""))
