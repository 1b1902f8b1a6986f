"""The files of the pages as a server sends them."""

import gzip
import hashlib
import re
import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import service.web.pages
from service.server.app import create_app
from service.settings import BUNDLED, Settings
from service.web.pages import OPEN_PATHS

STATIC = Path(service.web.pages.__file__).parent / "static"
FILES = sorted(
    path.relative_to(STATIC).as_posix().removesuffix(".gz")
    for path in STATIC.rglob("*.*")
    if path.name.removesuffix(".gz").rpartition(".")[2] in ("css", "html", "js", "svg")
)


def test_every_file_is_served_with_its_type(client):
    assert len(FILES) > 15
    types = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
    for name in FILES:
        response = client.get(f"/web/{name}")
        assert response.status_code == 200, name
        assert response.headers["content-type"].startswith(types[name.rpartition(".")[2]])
        assert response.headers["x-content-type-options"] == "nosniff"
        assert OPEN_PATHS.fullmatch(f"/web/{name}")
        path = STATIC / name
        content = path.read_bytes() if path.exists() else gzip.decompress((STATIC / f"{name}.gz").read_bytes())
        assert response.content == content


@pytest.mark.parametrize(("path", "title"), [("/", "Softserve"), ("/docs", "Softserve API reference")])
def test_the_pages_have_a_strict_policy(client, path, title):
    response = client.get(path)
    assert f"<title>{title}</title>" in response.text
    policy = response.headers["content-security-policy"]
    directives = dict(each.strip().partition(" ")[::2] for each in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert {directives[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert ("require-trusted-types-for" in directives) == (path == "/")
    assert not re.search(r"<script>|<style|style=|\son\w+=|https?:", response.text)


def test_files_are_compressed_for_clients_that_say_so(client):
    for path in ("/", "/web/app.js", "/web/vendor/swagger-ui-bundle.js"):
        packed = client.get(path, headers={"Accept-Encoding": "gzip"})
        plain = client.get(path, headers={"Accept-Encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.content == plain.content
        assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
        assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"


def test_a_file_that_a_client_has_is_not_sent_again(client):
    tag = client.get("/web/app.js").headers["etag"]
    again = client.get("/web/app.js", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/web/app.js", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/web/app.js"])
def test_head_is_answered_without_a_body(client, path):
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize(
    "name", ["nope.js", "../pages.py", "%2e%2e/pages.py", "vendor/LICENSE-htm.txt", "", "/etc/passwd"]
)
def test_nothing_else_is_served(client, detail_of, name):
    assert detail_of(client.get(f"/web/{name}"), 404)


def test_the_pages_need_no_key_but_the_models_do(tmp_path):
    (tmp_path / "keys").write_text("a-key-of-the-tests")
    client = TestClient(create_app(Settings(models=("next-word:4",), api_keys=tmp_path / "keys")))
    for path in ("/", "/docs", "/openapi.json", "/web/openapi.json", "/web/app.js", "/web/views/score.js"):
        assert client.get(path).status_code == 200, path
    for path in ("/v1/models", "/web", "/web/../v1/models", "/web/%2e%2e/v1/models", "/redoc"):
        assert client.get(path).status_code == 401, path


def test_without_the_native_endpoints_the_root_is_the_reference():
    client = TestClient(create_app(Settings(models=("next-word:4",), protocols="oip")))
    assert client.get("/").text == client.get("/docs").text


def test_the_reference_lists_what_the_loaded_models_offer(tmp_path, copied_models, wait_until):
    shutil.copytree(BUNDLED / "intents", copied_models / "intents")
    (tmp_path / "keys").write_text("a-key-of-the-tests")
    settings = Settings(model_dirs=(copied_models,), models=("next-word",), admin_keys=tmp_path / "keys", threads=1)
    headers = {"Authorization": "Bearer a-key-of-the-tests"}

    def document():
        return client.get("/web/openapi.json").json()

    with TestClient(create_app(settings)) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        whole, first = client.get("/openapi.json").json(), document()
        assert {"/v1/next-word", "/v1/score", "/v1/models", "/livez"} <= set(first["paths"])
        assert not {"/v1/classify", "/v1/translate"} & set(first["paths"])
        assert "ClassifyRequest" not in first["components"]["schemas"]
        assert {"NextWordRequest", "NextWordResult", "Word"} <= set(first["components"]["schemas"])
        assert client.post("/v1/admin/models/intents/load", headers=headers).status_code == 200
        second = document()
        assert "/v1/classify" in second["paths"]
        assert second["components"]["schemas"]["ClassifyRequest"] == whole["components"]["schemas"]["ClassifyRequest"]
        assert client.post("/v1/admin/models/next-word/unload", headers=headers).status_code == 200
        assert not {"/v1/next-word", "/v1/score"} & set(document()["paths"])
        assert client.get("/openapi.json").json() == whole
    assert 'new URL("web/openapi.json", document.baseURI)' in (STATIC / "docs.js").read_text(encoding="utf-8")


def test_the_page_asks_at_once_for_every_module_but_those_of_views():
    named = re.findall(r'(?:href|src)="web/(.*?)"', (STATIC / "index.html").read_text(encoding="utf-8"))
    later = ("docs.js", "vendor/swagger-ui-bundle.js", "words.js")
    modules = [name for name in FILES if name.endswith(".js") and name not in later and not name.startswith("views/")]
    assert sorted(named) == sorted([*modules, "icon.svg", "style.css"])


def test_vendored_files_are_those_of_their_packages():
    table = (STATIC / "vendor" / "VERSIONS.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| `(.*?)` \| .* \| `([0-9a-f]{64})` \|", table)
    assert sorted(name for name, _ in rows) == sorted(
        path.name for path in (STATIC / "vendor").iterdir() if path.suffix in (".js", ".gz")
    )
    for name, checksum in rows:
        content = (STATIC / "vendor" / name).read_bytes()
        content = gzip.decompress(content) if name.endswith(".gz") else content
        assert hashlib.sha256(content).hexdigest() == checksum, name
