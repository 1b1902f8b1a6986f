"""Failures of the head, an entry, a node or the network: each test on two nodes of its own, a minute and more."""

import json
import subprocess
import sys
import time

import pytest
import yaml

from tests.fixtures.machines import Network, lacking
from tests.service.deploy.cluster import OWN, answers, deploy, run, start_ray, wait_until

_LACKING = lacking()
pytestmark = [pytest.mark.failures, pytest.mark.skipif(_LACKING is not None, reason=str(_LACKING))]

CONNECTIONS = 8
BEFORE = 5
"""Seconds of load before the failure."""
AFTER = 5
"""Seconds until Ray has noticed it."""
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


def sent_while(fail, at, addresses, seconds, *, spaces=0, timeout=60):
    """Send requests from a machine while something fails; return start, duration and result of each, and print them."""
    options = json.dumps([addresses, CONNECTIONS, seconds, spaces, timeout])
    clients = subprocess.Popen(at.command(sys.executable, "-c", CLIENTS, options), stdout=subprocess.PIPE, text=True)
    time.sleep(BEFORE)
    fail()
    sent = json.loads(clients.communicate(timeout=seconds + timeout + 60)[0])
    lost = not_answered(sent)
    print(f"\n{len(sent)} requests, {len(lost)} lost, slowest {max(each[1] for each in sent):.1f} s; {lost[:3]}")
    assert sum(begun > BEFORE + AFTER for begun, *_ in sent) > 200, "requests go on after the failure"
    return sent


def not_answered(sent):
    return [each for each in sent if each[2] != 200]


def test_of_requests_above_the_buffer_only_those_at_the_killed_node_are_lost(nodes):
    head, other = nodes
    lost = not_answered(sent_while(other.kill, head, [head.address], 20, spaces=300_000))
    assert len(lost) <= CONNECTIONS, "one of each connection"
    assert all(begun < BEFORE + AFTER for begun, *_ in lost)


def test_clients_that_know_two_entries_lose_nothing_where_one_ends(nodes):
    head, other = nodes
    assert not_answered(sent_while(other.kill, head, [other.address, head.address], 20)) == []


def test_other_nodes_keep_serving_without_the_head(nodes):
    """For longer than the minute after which Ray's nodes end by default; their metrics can be scraped."""
    head, other = nodes
    assert not_answered(sent_while(head.kill, other, [other.address], 90)) == []
    text = run(other, "curl", "-sS", "--fail", "--max-time", 20, f"http://{other.address}:8000/metrics")
    assert 'softserve_requests_total{deadline="",endpoint="/v1/classify",model="intents",replica=' in text


def test_a_head_that_is_started_again_is_a_new_cluster(nodes):
    head, other = nodes
    head.kill()
    run(head, "rm", "-f", "/tmp/ray/ray_current_cluster")
    start_ray(head)
    wait_until(lambda: not answers(other), 120)


def test_where_a_machine_vanishes_only_requests_in_flight_wait(nodes):
    head, other = nodes
    lost = not_answered(sent_while(other.vanish, head, [head.address], 30, timeout=40))
    assert {each[2] for each in lost} <= {"TimeoutError"}
    assert all(begun < BEFORE + AFTER for begun, *_ in lost)
