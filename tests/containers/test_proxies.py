"""docker/haproxy and docker/caddy: no request is lost while two instances are restarted one after the other."""

import contextlib
import http.client
import http.server
import os
import signal
import subprocess
import threading
import time

import pytest
from fastapi.routing import iter_route_contexts

from service.server.app import create_app
from service.settings import Settings
from tests.containers import podman
from tests.containers.files import DOCKER, DOCKERFILE, environment
from tests.containers.load import Load
from tests.fixtures.optional_tools import installed, missing
from tests.service.process import Process
from tests.support.ports import free_port

COMMANDS = {
    "haproxy": ["haproxy", "-db", "-f", str(DOCKER / "haproxy/haproxy.cfg")],
    "caddy": ["caddy", "run", "--adapter", "caddyfile", "--config", str(DOCKER / "caddy/Caddyfile")],
}
DELAY = environment(DOCKERFILE)["SOFTSERVE_DRAIN_DELAY"]


def wait_until(condition, seconds=180):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


class Instances:
    """Two instances of the service, each on a port of its own."""

    def __init__(self, directory):
        self._directory = directory
        self.ports = [free_port(), free_port()]
        self._running = {port: self._start(port) for port in self.ports}

    def ready(self):
        return all(each.ready() for each in self._running.values())

    def _start(self, port):
        return Process(self._directory / f"{port}.log", "--port", port, "--drain-delay", DELAY)

    def restart(self):
        """Restart each instance once the other is ready."""
        for port in self.ports:
            assert self._running[port].end() == 0
            self._running[port] = self._start(port)
            wait_until(self._running[port].ready)
            time.sleep(2)  # in which proxies notice, as between two updates

    def kill(self, port):
        """Kill an instance, and wait so that requests to it would fail."""
        self._running[port].end(signal.SIGKILL)
        time.sleep(3)

    def stop(self):
        for each in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.end(signal.SIGINT)


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    if not any(map(installed, COMMANDS)):
        pytest.skip(missing("haproxy"))
    started = Instances(tmp_path_factory.mktemp("instances"))
    try:
        wait_until(started.ready)
        yield started
    finally:
        started.stop()


@contextlib.contextmanager
def proxy(name, ports, directory):
    """Run a proxy with the shipped configuration, and yield its port."""
    port = free_port()
    addresses = dict(zip(("SOFTSERVE_ONE", "SOFTSERVE_TWO"), (f"127.0.0.1:{each}" for each in ports), strict=True))
    bind = f"127.0.0.1:{port}" if name == "haproxy" else f"http://127.0.0.1:{port}"
    homes = dict.fromkeys(("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(directory))
    with (directory / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(
            COMMANDS[name],
            env=os.environ | addresses | homes | {"SOFTSERVE_BIND": bind},
            stdout=log,
            stderr=log,
        )
    try:
        podman.wait_for(f"http://127.0.0.1:{port}/readyz", 90)
        yield port
    finally:
        running.terminate()
        running.wait(60)


@pytest.fixture(scope="module")
def restarted(instances, tmp_path_factory):
    """What each proxy lost in one rolling restart under a load through all of them."""
    with contextlib.ExitStack() as stack:
        loads = {}
        for name in filter(installed, COMMANDS):
            port = stack.enter_context(proxy(name, instances.ports, tmp_path_factory.mktemp(name)))
            loads[name] = stack.enter_context(Load(port, clients=3))
        time.sleep(2)
        instances.restart()
    return loads


def assert_nothing_lost(load):
    statuses = {status: load.answered.count(status) for status in set(load.answered)}
    print(f"\n{len(load.answered)} answers by status {statuses}, {len(load.lost)} lost")
    assert load.lost == []
    assert statuses.keys() <= {200, 404, 413, 422, 429}
    assert statuses[200] > 20


@pytest.mark.parametrize("name", COMMANDS)
def test_a_rolling_restart_loses_no_request(request, name):
    if not installed(name):
        pytest.skip(missing(name))
    assert_nothing_lost(request.getfixturevalue("restarted")[name])


def test_haproxy_loses_no_prediction_of_an_instance_that_is_killed(request, tmp_path):
    if not installed("haproxy"):
        pytest.skip(missing("haproxy"))
    instances = request.getfixturevalue("instances")
    with proxy("haproxy", instances.ports, tmp_path) as port, Load(port, clients=3) as load:
        time.sleep(2)
        instances.kill(instances.ports[0])
    assert_nothing_lost(load)


class LosingInstance(http.server.BaseHTTPRequestHandler):
    """An instance that is ready, and closes the connection of a POST request without an answer."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(self.path)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def losing_instances():
    """Run two instances that answer no POST request; yield their ports and the paths that both have received."""
    with contextlib.ExitStack() as stack:
        received, ports = [], []
        for _ in range(2):
            server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), LosingInstance))
            server.received = received
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            ports.append(server.server_port)
        yield ports, received


def administrator_paths(directory):
    """The paths of calls that load or unload a model."""
    (directory / "keys").write_text("admin-key-of-some-length")
    app = create_app(Settings(admin_keys=directory / "keys"))
    paths = {getattr(context.original_route, "path", "") for context in iter_route_contexts(app.routes)}
    found = {path.format_map({"name": "a", "model": "a"}) for path in paths if path.endswith("load")}
    assert len(found) == 4
    return found


def test_haproxy_repeats_predictions_and_no_call_of_an_administrator(tmp_path):
    if not installed("haproxy"):
        pytest.skip(missing("haproxy"))
    administration = administrator_paths(tmp_path)
    encoded = {path.replace("/v", "/%76") for path in administration}
    with losing_instances() as (ports, received), proxy("haproxy", ports, tmp_path) as port:
        for path in ("/v1/translate", *administration, *encoded):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", path, b"{}")
            assert connection.getresponse().status == 502
            connection.close()
    counts = {path: received.count(path) for path in received}
    assert counts.pop("/v1/translate") > 1
    assert counts == dict.fromkeys(administration | encoded, 1)


def test_a_load_notices_requests_that_are_lost(instances):
    """Without a proxy, a killed instance loses some: the tests above can fail."""
    with Load(instances.ports[1], clients=3) as load:
        time.sleep(1)
        instances.kill(instances.ports[1])
    assert load.lost
