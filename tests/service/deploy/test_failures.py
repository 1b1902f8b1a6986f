"""What is lost where more fails than a replica: each test on two nodes of Ray of its own, each a minute and more."""

import json
import subprocess
import sys
import time

import pytest
import yaml

from tests.fixtures.machines import Network, lacking
from tests.service.deploy.cluster import OWN, answers, deploy, start_ray, wait_until

_LACKING = lacking()
pytestmark = [pytest.mark.failures, pytest.mark.skipif(_LACKING is not None, reason=str(_LACKING))]

CONNECTIONS = 8
BEFORE = 5
"""Seconds of load before the failure."""
CLIENTS = """
import http.client, json, sys, threading, time

addresses, clients, seconds, spaces, timeout = json.loads(sys.argv[1])
body = json.dumps({"text": "play some music", "top_k": 1}) + " " * spaces
sent, began = [], time.monotonic()


def ask(address):
    connection = http.client.HTTPConnection(address, 8000, timeout=timeout)
    try:
        connection.request("POST", "/v1/classify", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
    except Exception as error:
        return type(error).__name__
    finally:
        connection.close()


def client():
    while (start := time.monotonic()) < began + seconds:
        for address in addresses:
            found = ask(address)
            if found == 200:
                break
        sent.append((start - began, time.monotonic() - start, found))
        time.sleep(0.05)


threads = [threading.Thread(target=client) for _ in range(clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(sent))
"""


@pytest.fixture
def nodes(tmp_path):
    """The head and another node, each with a replica of the classifier."""
    config = tmp_path / "config.yaml"
    application = {"name": "a", "route_prefix": "/", "import_path": "service.deploy.ray:application"}
    application["args"] = {"replicas": 2, "settings": {"models": ["intents"]}}
    http = {"host": "0.0.0.0", "port": 8000}
    config.write_text(
        yaml.safe_dump({"proxy_location": "EveryNode", "http_options": http, "applications": [application]})
    )
    with Network(tmp_path / "nodes", OWN) as network:
        head, other = network.machines
        start_ray(head)
        start_ray(other, head)
        deploy(head, config)
        wait_until(lambda: answers(head) and answers(other))
        yield head, other


def lost_of(at, addresses, seconds, fail, *, spaces=0, timeout=60):
    """Send requests from a machine, let something fail meanwhile, and return what was lost; prints it."""
    options = json.dumps([addresses, CONNECTIONS, seconds, spaces, timeout])
    clients = subprocess.Popen(at.command(sys.executable, "-c", CLIENTS, options), stdout=subprocess.PIPE, text=True)
    time.sleep(BEFORE)
    fail()
    sent = json.loads(clients.communicate(timeout=seconds + timeout + 60)[0])
    lost = [each for each in sent if each[2] != 200]
    print(f"\n{len(sent)} requests, {len(lost)} lost, slowest {max(each[1] for each in sent):.1f} s; {lost[:3]}")
    assert len(sent) > 20 * seconds
    return lost


def test_of_requests_above_the_buffer_those_at_the_killed_node_are_lost(nodes):
    head, other = nodes
    lost = lost_of(head, [head.address], 20, other.kill, spaces=300_000)
    assert len(lost) <= CONNECTIONS, "one of each connection"


def test_clients_that_know_two_entries_lose_nothing_where_one_ends(nodes):
    head, other = nodes
    assert lost_of(head, [other.address, head.address], 20, other.kill) == []


def test_replicas_answer_on_without_the_head(nodes):
    """For longer than the minute after which Ray's nodes end by default."""
    head, other = nodes
    assert lost_of(other, [other.address], 90, head.kill) == []


def test_where_a_machine_vanishes_only_requests_in_flight_wait(nodes):
    head, other = nodes
    lost = lost_of(head, [head.address], 30, other.vanish, timeout=40)
    assert len(lost) <= CONNECTIONS
    assert {each[2] for each in lost} <= {"TimeoutError"}
