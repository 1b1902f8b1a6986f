"""What the containers are made of, as the tests read it."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
PROMETHEUS = DOCKER / "prometheus"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana/dashboards/softserve.json").read_text(encoding="utf-8"))


def rules(name: str) -> list[dict[str, Any]]:
    """The rules of a file of Prometheus."""
    groups = yaml.safe_load((PROMETHEUS / name).read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """What the dashboard shows, rows left out."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Every PromQL expression of dashboard, rules and documentation, by where it stands.

    Grafana's variables have values; an alert is asked for without its comparison, which holds only when it fires.
    """
    found = {f"recording.yml {rule['record']}": rule["expr"] for rule in rules("recording.yml")}
    found |= {f"alerts.yml {rule['alert']}": _without_comparison(rule["expr"]) for rule in rules("alerts.yml")}
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$model", ".+")
            found[f"dashboard {panel['id']} {panel['title']} {target['refId']}"] = expression
    for number, block in enumerate(re.findall(r"^```promql\n(.*?)^```", OPERATIONS, re.MULTILINE | re.DOTALL)):
        found[f"operations.md {number}"] = block
    return found


def environment(dockerfile: str) -> dict[str, str]:
    """The environment variables that a Dockerfile sets."""
    return dict(re.findall(r'(?:^ENV|^   ) (\w+)="?([^"\s]*)"?(?: \\)?$', dockerfile, re.MULTILINE))


def _without_comparison(expression: str) -> str:
    """`a > 1 and b > 2` as `a and b`."""
    sides = expression.split(" and ")
    return " and ".join(re.split(r"\s+(?:>|<|==)\s+", side)[0] for side in sides)


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
