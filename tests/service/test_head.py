"""HEAD of every path that GET is served on, in all protocols."""

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from service.server.app import create_app
from service.settings import PROTOCOLS, Settings

NAMES = {"{name}": "next-word", "{model}": "next-word", "{version}": "2", "{rest:path}": "status"}
APP = create_app(Settings(threads=1, models=("next-word:4",), protocols=",".join(("native", *PROTOCOLS))))


def paths():
    found = set()
    for context in iter_route_contexts(APP.routes):
        path = context.original_route.path
        if "GET" in (getattr(context.original_route, "methods", None) or ()):
            for name, value in NAMES.items():
                path = path.replace(name, value)
            found.add(path)
    return sorted(found)


@pytest.fixture(scope="module")
def client(wait_until):
    with TestClient(APP, follow_redirects=False) as client:
        wait_until(lambda: APP.state.served_models.ready, 120)
        yield client


def test_all_families_have_such_paths():
    for path in ("/livez", "/metrics", "/v1/models", "/v2/models/next-word", "/v2/languages", "/languages", "/info"):
        assert path in paths()


@pytest.mark.parametrize("path", paths())
def test_head_is_get_without_the_body(client, path):
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code
    assert head.content == b""
    varying = ("x-request-id", "content-length") if path == "/metrics" else ("x-request-id",)
    ours, theirs = ({name: each.headers[name] for name in each.headers if name not in varying} for each in (head, got))
    assert ours == theirs


def test_head_where_there_is_no_get_is_refused(client):
    response = client.head("/v1/next-word")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


def test_metrics_count_the_template_of_the_path(client):
    client.head("/v1/models/next-word")
    assert 'endpoint="/v1/models/{name}"' in client.get("/metrics").text
