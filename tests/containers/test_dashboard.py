"""What watches the service: rules, alerts, their paragraphs, the dashboard."""

import importlib.util
import json
import re
import subprocess
from collections import Counter

import promql_parser
import pytest
import yaml

from service.observability.metrics import Metrics
from tests.containers.files import (
    COMPOSE,
    DASHBOARD,
    DOCKER,
    OPERATIONS,
    PROMETHEUS,
    ROOT,
    annotations,
    expressions,
    panels,
    rules,
)
from tests.fixtures.optional_tools import installed, missing

ALERTS = rules("alerts.yml")
RUNBOOK = json.loads((DOCKER / "grafana/dashboards/softserve-runbook.json").read_text(encoding="utf-8"))
DATA_SOURCES = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]


ALERTMANAGER = yaml.safe_load((DOCKER / "alertmanager/alertmanager.yml").read_text())
CONFIGURATION = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())


def tool(name, *arguments, directory=PROMETHEUS):
    if not installed(name):
        pytest.skip(missing(name))
    finished = subprocess.run([name, *arguments], cwd=directory, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def promtool(*arguments):
    return tool("promtool", *arguments)


def known_metrics():
    """Names of samples that the service, Prometheus itself and the recording rules make."""
    recorded = rules("objectives.yml") + rules("recording.yml")
    made = {rule["record"] for rule in recorded} | {"ALERTS", "up"}
    for family in Metrics().registry.collect():
        kinds = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "gauge": ("",)}
        made |= {f"{family.name}{suffix}" for suffix in kinds[family.type]}
    return made


def test_prometheus_takes_the_configuration():
    promtool("check", "config", "prometheus.yml")


def test_a_prometheus_that_is_configured_as_the_guide_says_has_every_rule_and_the_runbook():
    """The alerts compare series with `objectives.yml`: none of them fires if that file is left out."""
    guide = (ROOT / "docs/how-to/monitoring.md").read_text(encoding="utf-8")
    configuration = yaml.safe_load(re.search(r"^```yaml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)[1])
    files = {path.name for path in PROMETHEUS.glob("*.yml") if "groups" in yaml.safe_load(path.read_text())}
    assert set(configuration["rule_files"]) == set(CONFIGURATION["rule_files"]) == files
    assert configuration["global"]["external_labels"] == CONFIGURATION["global"]["external_labels"]
    assert configuration["alerting"].items() <= CONFIGURATION["alerting"].items()
    assert configuration["scrape_configs"][0]["job_name"] == CONFIGURATION["scrape_configs"][0]["job_name"]


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
    address = f"{{{{ $externalLabels.runbook }}}}#{alert['alert'].lower()}"
    assert alert["annotations"]["runbook_url"] == address
    section = OPERATIONS.partition(f"\n### {alert['alert']}\n")[2].partition("\n#")[0]
    assert len(section.split()) > 30


def test_every_paragraph_has_its_alert():
    headings = re.findall(r"^### (Softserve\w+)$", OPERATIONS, re.MULTILINE)
    assert headings == [alert["alert"] for alert in ALERTS]


def test_the_runbook_has_an_absolute_address_that_grafana_serves():
    address = CONFIGURATION["global"]["external_labels"]["runbook"]
    assert address == f"http://127.0.0.1:3000/d/{RUNBOOK['uid']}"
    assert COMPOSE["services"]["grafana"]["ports"] == ["127.0.0.1:3000:3000"]
    assert {panel["title"] for panel in RUNBOOK["panels"]} == {alert["alert"] for alert in ALERTS}
    assert all(len(panel["options"]["content"].split()) > 30 for panel in RUNBOOK["panels"])


def test_alertmanager_takes_the_configuration_and_is_told_of_alerts():
    tool("amtool", "check-config", "alertmanager.yml", directory=DOCKER / "alertmanager")
    (target,) = CONFIGURATION["alerting"]["alertmanagers"][0]["static_configs"]
    assert target == {"targets": ["alertmanager:9093"]}
    assert CONFIGURATION["alerting"]["alert_relabel_configs"] == [{"regex": "runbook", "action": "labeldrop"}]


@pytest.mark.parametrize(("severity", "receiver"), [("page", "page"), ("ticket", "shown-only")])
def test_an_alert_goes_to_the_receiver_of_its_severity(severity, receiver):
    arguments = ["config", "routes", "test", "--config.file=alertmanager.yml", f"severity={severity}"]
    assert tool("amtool", *arguments, directory=DOCKER / "alertmanager").strip() == receiver
    assert receiver in {each["name"] for each in ALERTMANAGER["receivers"]}
    assert severity in {alert["labels"]["severity"] for alert in ALERTS}


@pytest.mark.parametrize("place", [*expressions(), *annotations()])
def test_expressions_parse_and_ask_for_what_is_measured(place):
    expression = (expressions() | annotations())[place]
    promql_parser.parse(expression)
    names = set(re.findall(r"\b(?:softserve_\w+|process_\w+|\w+:\w+:\w+|ALERTS)\b", expression))
    assert names <= known_metrics()


def test_the_dashboards_are_those_that_the_script_writes():
    path = DOCKER / "grafana/dashboards.py"
    script = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("dashboards", path))
    spec.loader.exec_module(script)
    assert {path: path.read_text(encoding="utf-8") for path in script.written()} == script.written()


def test_the_dashboard_has_variables_links_and_annotations():
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["datasource", "instance", "model", "device"]
    assert [link["url"] for link in DASHBOARD["links"]] == [f"/d/{RUNBOOK['uid']}"]
    assert annotations().keys() == {"Models loaded", "Restarts"}
    assert "alertlist" in {panel["type"] for panel in DASHBOARD["panels"]}


def test_no_title_is_repeated():
    titles = Counter(panel["title"] for panel in DASHBOARD["panels"])
    assert titles.most_common(1)[0][1] == 1


def test_limits_are_those_of_the_alerts_and_objectives():
    limits = {
        panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        for panel in panels()
        if panel["fieldConfig"]["defaults"].get("custom", {}).get("thresholdsStyle")
    }
    conditions = {alert["alert"]: alert["expr"] for alert in ALERTS}
    assert conditions["SoftserveQueueNearLimit"].endswith(f"> {limits.pop('Queue fill')}")
    assert conditions["SoftserveRefusesRequests"].endswith(f"> {limits.pop('Refused requests')}")
    assert f"[1h]) > {limits.pop('Starts')}\n" in conditions["SoftserveRestartLoop"]
    objective = next(rule for rule in rules("objectives.yml") if "success" in rule["record"])["expr"]
    assert objective == f"vector({1 - limits.pop('Errors by endpoint')})"
    assert f"> {limits.pop('Disagreement')}\n" in conditions["SoftserveExperimentDisagrees"]
    assert not limits


def test_the_dashboard_answers_its_questions():
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows[:5] == ["Health", "Latency", "Endpoints", "Utilization", "Rejections"]
    assert "GPUs and other devices" in rows
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
        "softserve_computation_timeouts_total",
        "softserve_stuck_computations",
        "softserve_models_ready",
    ):
        assert name in asked


def test_panels_have_a_description_a_unit_and_the_provisioned_source():
    (source,) = DATA_SOURCES
    chosen = DASHBOARD["templating"]["list"][0]
    assert (chosen["query"], chosen["current"]["value"]) == (source["type"], source["uid"])
    assert len(panels()) > 25
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in panels():
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["fieldConfig"]["defaults"]["noValue"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        if panel["type"] == "timeseries":
            assert panel["options"]["legend"]["calcs"] == ["lastNotNull", "mean", "max"]


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
    assert (DASHBOARD["uid"], RUNBOOK["uid"]) == ("softserve", "softserve-runbook")
