"""compose.yaml, up and under load: Prometheus scrapes the service and knows every number that is asked for.

Containers share the host's network here (docker/host.yaml), on the loopback interface. Everything else is as
compose.yaml says. `SCREENSHOT=docs/figures/prometheus.png` keeps a picture.
"""

import contextlib
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import pytest
import yaml

from tests.containers import podman
from tests.containers.files import expressions, rules

pytestmark = pytest.mark.containers

URL = "http://127.0.0.1:9090"
ALERTMANAGER = "http://127.0.0.1:9093"
SERVICES = ["softserve", "prometheus", "alertmanager"]
LOADS = [
    "--model next-word --connections 4",
    "--model next-word --endpoint score --connections 2",
    "--model de-en --connections 2",
    "--model intents --rate 100 --texts-per-request 32",
]
GRAPHS = [
    'sum by (model, status) (rate(softserve_requests_total{model!=""}[1m]))',
    'histogram_quantile(0.99, sum by (model, le) (rate(softserve_request_duration_seconds_bucket{model!=""}[1m])))',
    "sum by (model) (rate(softserve_batch_items_sum[1m])) / sum by (model) (rate(softserve_batch_items_count[1m]))",
]


class BrokenExpression(Exception):
    pass


def value_of(expression):
    """The result of a query; raises `BrokenExpression` where it is empty or not a number throughout."""
    status, text = podman.ask(f"{URL}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    answer = json.loads(text)
    if status != 200:
        raise BrokenExpression(answer["error"])
    found = [float(sample["value"][1]) for sample in answer["data"]["result"]]
    if not found or all(math.isnan(number) for number in found):
        raise BrokenExpression(f"no data: {expression}")
    return found


@contextlib.contextmanager
def under_load(url):
    """`python -m benchmarks.load`, one load test for each operation; the last exceeds the capacity."""
    command = [sys.executable, "-m", "benchmarks.load", url, "--seconds", "600"]
    loads = [subprocess.Popen([*command, *flags.split()], stdout=subprocess.DEVNULL) for flags in LOADS]
    try:
        yield
        assert [load.poll() for load in loads] == [None] * len(loads), "a load test ended early"
    finally:
        for load in loads:
            load.kill()
            load.wait()


@pytest.fixture(scope="module")
def up(image, engine):
    """Service and Prometheus, a minute and a half under load."""
    compose = shutil.which("podman-compose", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if compose is None:
        pytest.skip("podman-compose is not installed")
    for port in (8000, 9090, 9093):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"something else listens on port {port}")
    images = {name: {"image": podman.ensure_monitoring(name, engine)} for name in SERVICES[1:]}
    override = engine / "compose.override.yaml"
    override.write_text(yaml.safe_dump({"services": {"softserve": {"image": image}, **images}}))
    files = ["-f", "compose.yaml", "-f", "docker/host.yaml", "-f", str(override)]
    command = [compose, "--in-pod=0", "-p", "softserve-test", *files]
    started = time.monotonic()
    try:
        podman.run(*command, "up", "-d", "--no-build", *SERVICES, timeout=120)
        podman.wait_for("http://127.0.0.1:8000/readyz", 60)
        print(f"\nfrom `up` to ready: {time.monotonic() - started:.1f} s")
        print(podman.ask("http://127.0.0.1:8000/v1/translate", {"text": "Guten Morgen!"})[1])
        podman.wait_for(f"{URL}/-/ready", 60)
        podman.wait_for(f"{ALERTMANAGER}/-/ready", 60)
        with under_load("http://127.0.0.1:8000"):
            time.sleep(90)
            yield
    finally:
        podman.run(*command, "down", "--volumes", timeout=120)


def test_prometheus_scrapes_the_service(up):
    assert value_of('up{job="softserve"}') == [1]
    assert len(value_of("softserve_model_info")) == 3


def test_prometheus_sends_alerts_to_alertmanager(up):
    known = json.loads(podman.ask(f"{URL}/api/v1/alertmanagers")[1])["data"]["activeAlertmanagers"]
    assert [each["url"] for each in known] == ["http://alertmanager:9093/api/v2/alerts"]
    assert value_of('up{job="alertmanager"}') == [1]


def test_ports_are_on_the_loopback_interface_alone(up):
    listening = podman.run("ss", "-Hltn").splitlines()
    addresses = {line.split()[3] for line in listening if line.split()[3].endswith((":8000", ":9090", ":9093"))}
    assert addresses == {"127.0.0.1:8000", "127.0.0.1:9090", "127.0.0.1:9093"}


@pytest.mark.parametrize("place", expressions())
def test_every_expression_has_data(up, place):
    value_of(expressions()[place])


@pytest.mark.parametrize(
    "expression", ["softserve_requests_totals", "rate(softserve_queue_items)", "sum by (le) (", "0 / 0 * up"]
)
def test_a_broken_expression_is_noticed(up, expression):
    with pytest.raises(BrokenExpression):
        value_of(expression)


def test_no_rule_fails(up):
    groups = json.loads(podman.ask(f"{URL}/api/v1/rules")[1])["data"]["groups"]
    states = [(rule["health"], rule.get("lastError", "")) for group in groups for rule in group["rules"]]
    assert len(states) == sum(len(rules(f"{name}.yml")) for name in ("objectives", "recording", "alerts"))
    assert set(states) == {("ok", "")}


def test_its_pages_show_the_load(up, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    query = {f"g{number}.expr": expression for number, expression in enumerate(GRAPHS)}
    for number in range(len(GRAPHS)):
        query |= {f"g{number}.tab": "0", f"g{number}.range_input": "2m", f"g{number}.stacked": "0"}
    picture = Path(os.environ.get("SCREENSHOT", tmp_path / "prometheus.png"))
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    quiet += ["--disable-component-update", "--disable-sync"]
    with playwright.sync_playwright() as library:
        browser = library.chromium.launch(executable_path=chromium, args=quiet)
        page = browser.new_page(viewport={"width": 1300, "height": 1700})
        page.goto(f"{URL}/graph?{urllib.parse.urlencode(query)}", wait_until="networkidle")
        page.wait_for_timeout(3000)
        page.screenshot(path=picture, full_page=True)
        text = page.inner_text("body")
        browser.close()
    assert "next-word" in text
    assert "Error executing query" not in text
    assert picture.stat().st_size > 10_000
