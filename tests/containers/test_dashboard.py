"""What watches the service: rules, alerts, their paragraphs, the dashboard."""

import json
import re
import subprocess

import pytest
import yaml

from service.metrics import Metrics
from tests.containers.files import COMPOSE, DASHBOARD, DOCKER, OPERATIONS, PROMETHEUS, expressions, panels, rules
from tests.fixtures.optional_tools import installed, missing

ALERTS = rules("alerts.yml")
DATA_SOURCES = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]


def promtool(*arguments):
    if not installed("promtool"):
        pytest.skip(missing("promtool"))
    finished = subprocess.run(["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def known_metrics():
    """Names of samples that the service, Prometheus itself and the recording rules make."""
    made = {rule["record"] for rule in rules("recording.yml")} | {"ALERTS", "up"}
    for family in Metrics().registry.collect():
        kinds = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "gauge": ("",)}
        made |= {f"{family.name}{suffix}" for suffix in kinds[family.type]}
    return made


def test_prometheus_takes_the_configuration():
    promtool("check", "config", "prometheus.yml")


def test_every_alert_fires_and_clears():
    promtool("test", "rules", "alerts.test.yml")


def test_every_alert_is_tested_both_ways():
    tests = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text())["tests"]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    for fires in (True, False):
        tested = {check["alertname"] for check in checks if bool(check["exp_alerts"]) is fires}
        assert tested == {alert["alert"] for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_has_its_paragraph(alert):
    assert alert["annotations"]["runbook"] == f"docs/operations.md#{alert['alert'].lower()}"
    section = OPERATIONS.partition(f"\n### {alert['alert']}\n")[2].partition("\n#")[0]
    assert len(section.split()) > 30


def test_every_paragraph_has_its_alert():
    headings = re.findall(r"^### (Softserve\w+)$", OPERATIONS, re.MULTILINE)
    assert headings == [alert["alert"] for alert in ALERTS]


@pytest.mark.parametrize("place", expressions())
def test_expressions_ask_for_what_is_measured(place):
    names = set(re.findall(r"\b(?:softserve_\w+|process_\w+|\w+:\w+:\w+|ALERTS)\b", expressions()[place]))
    assert names <= known_metrics()


def test_the_dashboard_answers_its_questions():
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows[:4] == ["Is it healthy?", "How fast?", "How full?", "What is refused, and why?"]
    asked = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    for stage in ("request", "queue", "tokenize", "inference"):
        for quantile in ("0.5", "0.95", "0.99"):
            assert f"histogram_quantile({quantile}, sum by (model, le) (rate(softserve_{stage}_duration" in asked
    for name in (
        "model:softserve_queue:fill",
        "softserve_batch_items_sum",
        "softserve_batch_padding_ratio_sum",
        "softserve_rejected_total",
        "softserve_prefix_cache_hits_total",
        "softserve_batch_tokens_sum",
        "softserve_generated_tokens_total",
        "process_resident_memory_bytes",
        "softserve_event_loop_lag_seconds_bucket",
        "softserve_engine_failures_total",
        "softserve_models_ready",
    ):
        assert name in asked


def test_panels_have_a_description_a_unit_and_the_provisioned_source():
    (source,) = DATA_SOURCES
    assert len(panels()) > 15
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in panels():
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {source["uid"]}


def test_panels_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken
        taken |= cells


def test_grafana_finds_what_compose_mounts():
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"])
    provider = yaml.safe_load((DOCKER / "grafana/provisioning/dashboards/softserve.yaml").read_text())["providers"][0]
    assert provider["options"]["path"] == mounts["./docker/grafana/dashboards"]
    environment = COMPOSE["services"]["grafana"]["environment"]
    assert environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{provider['options']['path']}/softserve.json"
    assert json.dumps(DASHBOARD).count('"uid": "softserve"') == 1
