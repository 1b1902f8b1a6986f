"""The chart, rendered: its objects by kind, and their validation by the schemas of Kubernetes."""

import functools
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.containers.files import DOCKER

CHART = DOCKER / "helm" / "softserve"
RELEASE, NAMESPACE = "shop", "models"
VERSIONS = ("1.29", "1.33", "1.37")
"""Versions of Kubernetes: the oldest that Chart.yaml allows, one between, and the newest that has schemas."""
OTHERS = {"ScaledObject", "ServiceMonitor", "PrometheusRule"}
"""Kinds that are not of Kubernetes itself."""
SWITCHES = (
    *("hpa", "keda", "serviceMonitor", "prometheusRule", "dashboards", "networkPolicy"),
    *("podDisruptionBudget", "topologySpread", "serviceAccount"),
)

Objects = dict[str, dict[str, Any]]


@functools.cache
def chart() -> Any:
    import helm_python

    return helm_python.Chart.load(CHART)


def file_values(name: str) -> dict[str, Any]:
    """The values of an example."""
    values: dict[str, Any] = yaml.safe_load((CHART / name).read_text(encoding="utf-8"))
    return values


def rendered(values: Mapping[str, Any] | None = None, of: Any = None) -> Objects:
    """The objects of a release by kind. Raises `HelmValuesError` for values that the schema refuses."""
    files = (of or chart()).render(dict(values or {}), name=RELEASE, namespace=NAMESPACE)
    objects = [_parsed(text) for name, text in files.items() if name.endswith(".yaml") and text.strip()]
    assert len({each["kind"] for each in objects}) == len(objects)
    return {each["kind"]: each for each in objects}


@functools.cache
def _parsed(text: str) -> dict[str, Any]:
    (found,) = yaml.load_all(text, yaml.CSafeLoader)
    validate(found)
    return dict(found)


def validate(found: Mapping[str, Any]) -> None:
    """Check an object by the strict schemas of Kubernetes, which refuse unknown fields."""
    if found["kind"] not in OTHERS:
        for version in VERSIONS:
            assert _kubernetes_validate().validate(found, version, strict=True) == version


@functools.cache
def _kubernetes_validate() -> Any:
    """The module, which reads the same large files for each object, and without formats that take seconds to import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)
        from kubernetes_validate import utils
    utils.schema_contents = functools.cache(utils.schema_contents)
    return utils


def combinations() -> Iterator[dict[str, bool]]:
    """Every combination of the switches."""
    for states in itertools.product((False, True), repeat=len(SWITCHES)):
        yield dict(zip(SWITCHES, states, strict=True))


def switched(states: Mapping[str, bool]) -> dict[str, Any]:
    """The values that set switches."""
    return {name: {"create" if name == "serviceAccount" else "enabled": on} for name, on in states.items()}


def pod(objects: Objects) -> dict[str, Any]:
    """The specification of the pods."""
    specification: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return specification


def container(objects: Objects) -> dict[str, Any]:
    """The container of the service."""
    (found,) = pod(objects)["containers"]
    return dict(found)


def environment(objects: Objects) -> dict[str, str]:
    """The environment variables of the service."""
    return {variable["name"]: variable["value"] for variable in container(objects)["env"]}
