"""The playground with a server that is loading, overloaded, closed or gone, and requests that it aborts."""

import threading

import pytest
from playwright.sync_api import expect

from models.store import load_verified
from tests.fixtures.optional_tools import needs

pytestmark = needs("chromium")

KEY = "a-key-of-the-tests"


@pytest.fixture
def gated(library, gate, monkeypatch, running):
    """A server whose model computes nothing while the gate is closed."""

    def start(**settings):
        gate.guard(library, monkeypatch)
        server = running(models=("next-word:4",), parallel_batches=1, max_wait_ms=1e9, **settings)
        gate.reset()
        return server

    yield start
    gate.opened.set()


def test_a_request_is_aborted_when_its_input_changes(playground, gated, gate, wait_until, metric):
    server = gated()
    opened = playground("#next-word?context=the", address=server.address)
    opened.settle("Most probable")
    gate.opened.clear()
    field = opened.page.get_by_label("Beginning of a sentence")
    with opened.page.expect_event("requestfailed") as aborted:
        field.fill("the old")
        wait_until(lambda: "the old" in gate.contexts or opened.page.wait_for_timeout(20))
        field.fill("the new")
    assert aborted.value.post_data_json["context"][-1] == "the old"
    assert aborted.value.failure == "net::ERR_ABORTED"
    wait_until(lambda: metric(server, "softserve_requests_total", status="499") == 1)
    gate.opened.set()
    expect(opened.page.locator(".step .after")).to_have_text(["start", "the", "new"])
    assert [each["context"][-1] for each in opened.posts] == ["the", "the old", "the new"]


def test_an_overloaded_server_is_said_and_asked_again(playground, gated, gate, wait_until, metric):
    server = gated(max_queue_items=4, max_batch_items=4)
    opened = playground("#next-word?context=", address=server.address, noise=True)
    opened.settle("Most probable")
    gate.opened.clear()
    body = {"context": ["a", "b", "c", "d"]}
    others = [threading.Thread(target=server.post, args=("/v1/next-word", body)) for _ in range(2)]
    others[0].start()
    assert gate.entered.wait(60)
    others[1].start()
    wait_until(lambda: metric(server, "softserve_queue_items") == 4)
    opened.page.get_by_label("Beginning of a sentence").fill("we had")
    assert opened.settle("overloaded") == "The server is overloaded."
    notice = opened.page.locator(".notice")
    expect(notice).to_contain_text("the model's queue is full")
    expect(notice).to_contain_text("The page tries again in")
    gate.opened.set()
    for each in others:
        each.join()
    opened.settle("Most probable")
    assert opened.posts[-1]["context"][-1] == "we had"
    expect(notice).to_have_count(0)


def test_a_server_that_loads_is_waited_for(playground, running, library, monkeypatch, wait_until):
    loaded, original = threading.Event(), load_verified

    def load(*arguments, **options):
        assert loaded.wait(60)
        return original(*arguments, **options)

    monkeypatch.setattr("service.engine.replicas.load_verified", load)
    server = running(ready=False, models=("next-word:4",))
    opened = playground("#next-word", address=server.address, noise=True)
    status = opened.page.get_by_role("status")
    expect(status).to_contain_text("The server is not ready: models are being loaded.")
    expect(opened.page.locator(".state")).to_have_text("loading")
    assert opened.posts == []
    loaded.set()
    opened.settle("Most probable")
    expect(opened.page.locator(".state")).to_have_text("1 model ready")


def test_a_server_that_is_gone_is_said_and_found_again(playground, running):
    server = running(models=("next-word:4",))
    opened = playground("#next-word", address=server.address, noise=True)
    opened.settle("Most probable")
    port = server.port
    server.stop()
    opened.page.get_by_label("Beginning of a sentence").fill("we are")
    assert opened.settle("gone") == "The server is gone."
    expect(opened.page.locator(".notice")).to_contain_text("The server cannot be reached")
    expect(opened.page.locator(".state")).to_have_text("not reachable")
    running(port=port, models=("next-word:4",))
    opened.settle("Most probable")  # the page tries again itself
    expect(opened.page.locator(".state")).to_have_text("1 model ready")


def test_a_key_is_asked_for_and_never_shown(playground, running, tmp_path):
    (tmp_path / "keys").write_text(KEY)
    server = running(models=("next-word:4",), api_keys=tmp_path / "keys")
    opened = playground("#next-word", address=server.address, noise=True)
    page = opened.page
    expect(page.get_by_role("status")).to_have_text("The server asks for an API key. Enter it above.")
    page.get_by_label("API key").fill("another-key-that-is-wrong")
    page.get_by_label("API key").press("Enter")
    expect(page.get_by_text("The server does not accept this key.")).to_be_visible()
    page.get_by_label("API key").fill(KEY)
    page.get_by_role("button", name="Use").click()
    opened.settle("Most probable")
    page.get_by_text("This request as").click()
    for name in ("curl", "Python"):
        page.get_by_role("button", name=name, exact=True).click()
        assert "SOFTSERVE_API_KEY" in page.locator("pre").inner_text()
    page.reload()
    opened.settle("Most probable")  # kept for the tab
    assert KEY not in page.locator("main").inner_text() + page.url + "".join(opened.addresses)
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_role("status")).to_have_text("The server asks for an API key.")


def test_a_refused_input_says_why(playground, running):
    server = running(models=("next-word:4",), max_result_items=100)
    opened = playground("#next-word?context=a+b+c&words=50", address=server.address, noise=True)
    assert opened.settle("refused") == "The server refused this input."
    expect(opened.page.locator(".notice")).to_contain_text("100")
    expect(opened.page.get_by_role("button", name="Try again now")).to_have_count(0)
    opened.page.get_by_role("link", name="Classify").click()
    expect(opened.page.get_by_role("status")).to_have_text("This server has no model for “Classify”.")
