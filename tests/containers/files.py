"""What the containers are made of, as the tests read it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
PROMETHEUS = DOCKER / "prometheus"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SIGNATURES: dict[str, Any] = yaml.safe_load((DOCKER / "signatures.yaml").read_text(encoding="utf-8"))
DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana/dashboards/softserve.json").read_text(encoding="utf-8"))


def rules(name: str) -> list[dict[str, Any]]:
    """The rules of a file of Prometheus."""
    groups = yaml.safe_load((PROMETHEUS / name).read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """What the dashboard shows of metrics, rows left out."""
    return [panel for panel in DASHBOARD["panels"] if panel.get("targets")]


def expressions() -> dict[str, str]:
    """Every PromQL expression of dashboard, rules and documentation, by where it stands.

    Grafana's variables have values; an alert is asked for without its comparison, which holds only when it fires.
    """
    found = {f"{name} {rule['record']} {number}": rule["expr"] for name, number, rule in _recorded()}
    found |= {f"alerts.yml {rule['alert']}": _without_comparison(rule["expr"]) for rule in rules("alerts.yml")}
    for panel in panels():
        for target in panel["targets"]:
            found[f"dashboard {panel['id']} {panel['title']} {target['refId']}"] = _with_values(target["expr"])
    for number, block in enumerate(re.findall(r"^```promql\n(.*?)^```", OPERATIONS, re.MULTILINE | re.DOTALL)):
        found[f"operations.md {number}"] = block
    return found


def annotations() -> dict[str, str]:
    """The expressions of the dashboard's annotations, which have results when something happens."""
    return {each["name"]: _with_values(each["expr"]) for each in DASHBOARD["annotations"]["list"]}


def _recorded() -> Iterator[tuple[str, int, dict[str, Any]]]:
    for name in ("objectives.yml", "recording.yml"):
        for number, rule in enumerate(rules(name)):
            yield name, number, rule


def _with_values(expression: str) -> str:
    """An expression with values in place of Grafana's variables."""
    expression = expression.replace("$__rate_interval", "1m")
    return re.sub(r"\$(model|instance|device)\b", ".+", expression)


def environment(dockerfile: str) -> dict[str, str]:
    """The environment variables that a Dockerfile sets."""
    return dict(re.findall(r'(?:^ENV|^   ) (\w+)="?([^"\s]*)"?(?: \\)?$', dockerfile, re.MULTILINE))


def _without_comparison(expression: str) -> str:
    """`a > 1 and b > on (x) 2 * c` as `a and b`."""
    sides = re.split(r"\sand(?: on \(\w+\))? ", expression)
    return " and ".join(re.split(r"\s+(?:>=|>|<|==)\s+", side)[0] for side in sides)


def requirements(name: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package that a lock names."""
    found: dict[str, tuple[str, int]] = {}
    for block in re.split(r"\n(?=\S)", (DOCKER / name).read_text(encoding="utf-8")):
        if match := re.match(r"([A-Za-z0-9._-]+)(?:\[.*?\])?==([^\s;\\]+)", block):
            found[normalized(match[1])] = match[2], block.count("--hash=sha256:")
    return found


def normalized(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
