"""The rules of the chart, run by promtool: each release has its own, though one Prometheus scrapes several."""

import subprocess

import yaml

from tests.containers.files import PROMETHEUS, rules
from tests.containers.helm import NAMESPACE, rendered, switched
from tests.fixtures.optional_tools import needs

pytestmark = needs("helm_python", "kubernetes_validate", "promtool")

ALERTS = [rule["alert"] for rule in rules("alerts.yml")]


def labels_of(release):
    return {"namespace": NAMESPACE, "service": release}


def selected(release, series):
    """A series, or a selector with braces, of a release."""
    own = ", ".join(f'{name}="{value}"' for name, value in labels_of(release).items())
    return series.replace("{", f"{{{own}, ", 1) if "{" in series else f"{series}{{{own}}}"


def run(directory, releases, *tests):
    """Run tests of promtool with the rules of releases."""
    for release in releases:
        values = switched({"serviceMonitor": True, "prometheusRule": True}) | {"fullnameOverride": release}
        specification = rendered(values)["PrometheusRule"]["spec"]
        (directory / f"{release}.yml").write_text(yaml.safe_dump(specification))
    files = [f"{release}.yml" for release in releases]
    document = {"rule_files": files, "evaluation_interval": "1m", "tests": list(tests)}
    (directory / "test.yml").write_text(yaml.safe_dump(document))
    command = ["promtool", "test", "rules", "test.yml"]
    finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_every_alert_of_the_chart_fires_and_clears(tmp_path):
    text = (PROMETHEUS / "alerts.test.yml").read_text(encoding="utf-8")
    tests = yaml.load(text, yaml.BaseLoader)["tests"]  # strings alone: "0x30" is 31 samples, and no number
    for test in tests:
        for each in test["input_series"]:
            each["series"] = selected("first", each["series"])
        for check in test["alert_rule_test"]:
            for alert in check["exp_alerts"]:
                alert["exp_labels"] |= labels_of("first")
        for check in test.get("promql_expr_test", []):
            check["expr"] = selected("first", check["expr"])
            for sample in check["exp_samples"]:
                sample |= {"labels": selected("first", sample["labels"]), "value": float(sample["value"])}
    run(tmp_path, ["first"], *tests)


def test_alerts_of_a_release_are_neither_hidden_nor_repeated_by_those_of_another(tmp_path):
    """The first release serves; the second has no model loaded, and half of its requests fail."""
    requests = 'softserve_requests_total{job="softserve", model="de-en", endpoint="/v1/translate", status="%d"}'
    series = {
        selected("first", 'softserve_model_info{job="softserve", model="de-en", version="2"}'): "1x60",
        selected("first", requests % 200): "0+6000x60",
        selected("second", requests % 200): "0+60x60",
        selected("second", requests % 500): "0+60x60",
    }
    fails = "50% of the requests to de-en failed within"
    expected = {
        "SoftserveNoReadyModel": ("page", {}, "no instance has a model loaded"),
        "SoftserveErrorBudgetBurnsFast": ("page", {"model": "de-en"}, f"{fails} an hour"),
        "SoftserveErrorBudgetBurnsSlowly": ("ticket", {"model": "de-en"}, f"{fails} six hours"),
    }
    checks = [{"eval_time": "30m", "alertname": alert, "exp_alerts": []} for alert in ALERTS]
    for check in checks:
        if check["alertname"] in expected:
            severity, labels, summary = expected[check["alertname"]]
            address = f"http://127.0.0.1:3000/d/softserve-runbook#{check['alertname'].lower()}"
            alert = {"severity": severity, **labels, **labels_of("second")}
            annotations = {"summary": summary, "runbook_url": address}
            check["exp_alerts"] = [{"exp_labels": alert, "exp_annotations": annotations}]
    inputs = [{"series": each, "values": values} for each, values in series.items()]
    run(tmp_path, ["first", "second"], {"interval": "1m", "input_series": inputs, "alert_rule_test": checks})
