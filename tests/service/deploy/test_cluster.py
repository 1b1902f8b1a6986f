"""Two nodes of Ray: both answer, and no request is lost where one is killed, replicas change or a model is updated."""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from models.store import BUNDLED
from tests.fixtures.machines import Network, lacking
from tests.service.deploy.cluster import OWN, answers, deploy, run, start_ray, wait_until

LOAD = Path(__file__).with_name("load.py")
REQUESTS, CONNECTIONS = 5000, 16
ADMINISTRATOR = "admin-key-of-some-length"

_LACKING = lacking()
pytestmark = pytest.mark.skipif(_LACKING is not None, reason=str(_LACKING))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The classifier as versions 1 and 2."""
    directory = tmp_path_factory.mktemp("models") / "intents"
    newest = max((BUNDLED / "intents").iterdir(), key=lambda path: int(path.name))
    for version in (1, 2):
        shutil.copytree(newest, directory / str(version))
        manifest = directory / str(version) / "manifest.json"
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": version}))
    return directory.parent


@pytest.fixture
def config(models, tmp_path):
    (tmp_path / "admins").write_text(ADMINISTRATOR)

    def write(replicas, version=1):
        settings = {"models": [f"intents:{version}"], "model_dirs": [str(models)]}
        args = {"replicas": replicas, "settings": settings | {"admin_keys": str(tmp_path / "admins")}}
        content = {
            "proxy_location": "EveryNode",
            "http_options": {"host": "0.0.0.0", "port": 8000},
            "applications": [
                {"name": "a", "route_prefix": "/", "import_path": "service.deploy.ray:application", "args": args}
            ],
        }
        file = tmp_path / f"{replicas}-{version}.yaml"
        file.write_text(yaml.safe_dump(content))
        return file

    return write


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """The head and another node."""
    with Network(tmp_path_factory.mktemp("nodes"), OWN) as network:
        head, other = network.machines
        start_ray(head)
        start_ray(other, head)
        yield head, other


def url(node):
    return f"http://{node.address}:8000/v1/classify"


class Sent:
    """The result of the load, once it has ended."""


@contextlib.contextmanager
def load(node, requests=REQUESTS):
    """Send requests to a node from there while the block runs, at least so many where a number is given."""
    wait_until(lambda: answers(node))
    command = node.command(sys.executable, LOAD, url(node), requests, CONNECTIONS)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert "expected" in process.stdout.readline()
    sent = Sent()
    yield sent
    process.stdin.close()
    sent.__dict__ |= json.loads(process.stdout.read())
    assert process.wait(60) == 0


def assert_nothing_lost(sent):
    print(vars(sent))
    assert (sent.lost_number, sent.wrong_number, sent.doubled) == (0, 0, 0), vars(sent)


def versions(node):
    output = run(node, "curl", "-sS", "--fail", f"http://{node.address}:8000/v1/models")
    return {model["version"] for model in json.loads(output)["models"]}


def classified(node):
    """Return how many classifications each replica has answered; a replica has answered none where it is new."""
    text = run(node, "curl", "-sS", "--fail", f"http://{node.address}:8000/metrics")
    answered = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            replica = sample.labels["replica"]
            answered.setdefault(replica, 0)
            if sample.name == "softserve_requests_total" and sample.labels["endpoint"] == "/v1/classify":
                answered[replica] += sample.value
    return answered


def test_both_nodes_answer(nodes, config):
    head, other = nodes
    deploy(head, config(2))
    for node in (head, other):
        with load(node, 100) as sent:
            pass
        assert_nothing_lost(sent)
        assert sent.answered == 100
        # A busy replica may be left out of one answer; which replicas answered the requests is the router's choice.
        wait_until(lambda node=node: len(classified(node)) == 2)
    wait_until(lambda: sum(classified(head).values()) >= 200)


def test_no_answer_is_lost_while_replicas_are_added_and_removed(nodes, config):
    head, _ = nodes
    deploy(head, config(1))
    with load(head, "-") as sent:
        time.sleep(2)
        deploy(head, config(2))
        time.sleep(5)
        deploy(head, config(1))
        time.sleep(5)
    assert_nothing_lost(sent)
    assert sent.answered > 500


def test_no_answer_is_lost_while_a_model_is_updated(nodes, config):
    head, _ = nodes
    deploy(head, config(1))
    assert versions(head) == {1}
    with load(head, "-") as sent:
        deploy(head, config(1, version=2))
        wait_until(lambda: versions(head) == {2})
        time.sleep(3)
    assert_nothing_lost(sent)


def administrate(node, call):
    url = f"http://{node.address}:8000/v1/admin/models/{call}"
    run(node, "curl", "-sS", "--fail", "-X", "POST", "-H", f"X-API-Key: {ADMINISTRATOR}", url)


def test_a_call_of_an_administrator_reaches_all_replicas_and_those_that_are_added_later(nodes, config):
    head, other = nodes
    deploy(head, config(1))
    wait_until(lambda: answers(head) and answers(other))
    administrate(head, "intents:2/load")
    assert versions(other) == {1, 2}
    deploy(head, config(2))
    wait_until(lambda: len(classified(head)) == 2)
    for _ in range(6):
        assert versions(head) == versions(other) == {1, 2}
    administrate(other, "intents:1/unload")
    for _ in range(6):
        assert versions(head) == versions(other) == {2}


def test_no_answer_is_lost_where_a_node_is_killed(nodes, config):
    head, other = nodes
    deploy(head, config(2))
    with load(head) as sent:
        time.sleep(3)
        other.kill()
    assert_nothing_lost(sent)
    assert sent.answered == REQUESTS
