"""The manifests of docker/kserve: do they agree with each other, with the code and with the chart?

`tests/clients/packages/test_kserve_manifests.py` compares them with KServe's own models.
"""

import json

import pytest
import yaml

from service.settings import BUNDLED, DEFAULT_PROTOCOLS, Settings
from tests.containers import helm
from tests.containers.files import DOCKER
from tests.fixtures.optional_tools import needs


def manifest(name):
    return yaml.safe_load((DOCKER / "kserve" / f"{name}.yaml").read_text(encoding="utf-8"))


RUNTIME, SERVICE = manifest("serving-runtime")["spec"], manifest("inference-service")
PREDICTOR = SERVICE["spec"]["predictor"]
(CONTAINER,) = RUNTIME["containers"]
ENVIRONMENT = {variable["name"]: variable["value"] for variable in CONTAINER["env"]}


@pytest.fixture
def settings(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return Settings()


def test_the_service_is_of_the_runtime():
    model = PREDICTOR["model"]
    (offered,) = RUNTIME["supportedModelFormats"]
    assert model["runtime"] == manifest("serving-runtime")["metadata"]["name"]
    assert model["modelFormat"] == {name: offered[name] for name in ("name", "version")}
    assert RUNTIME["protocolVersions"] == [model["protocolVersion"]] == ["v2"]
    assert CONTAINER["name"] == "kserve-container"
    assert SERVICE["metadata"]["annotations"] == {"serving.kserve.io/deploymentMode": "Standard"}


def test_the_format_is_that_of_bundles_and_the_protocol_is_served():
    formats = {json.loads(path.read_text())["format_version"] for path in BUNDLED.glob("*/*/manifest.json")}
    assert {str(version) for version in formats} == {PREDICTOR["model"]["modelFormat"]["version"]}
    assert "oip" in DEFAULT_PROTOCOLS.split(",")


def test_models_are_looked_for_where_kserve_puts_them(settings):
    assert [str(path) for path in settings.model_dirs] == ["/mnt/models"]


def test_the_pod_has_the_time_that_it_takes_to_stop(settings):
    assert (settings.drain_delay, settings.shutdown_timeout) == (5, 30)
    assert PREDICTOR["terminationGracePeriodSeconds"] > settings.drain_delay + settings.shutdown_timeout + 5


def test_ports_are_the_port_of_the_service():
    ports = {probe["httpGet"]["port"] for name, probe in CONTAINER.items() if name.endswith("Probe")}
    assert ports == {port["containerPort"] for port in CONTAINER["ports"]} == {Settings().port}
    assert RUNTIME["annotations"]["prometheus.kserve.io/port"] == str(Settings().port)


@needs("helm_python", "kubernetes_validate")
def test_the_container_is_that_of_the_chart():
    """It has the directory of models and a user in addition."""
    objects = helm.rendered()
    ours = helm.container(objects)
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert CONTAINER[name]["httpGet"]["path"] == ours[name]["httpGet"]["path"]
        assert {**CONTAINER[name], "httpGet": None} == {**ours[name], "httpGet": None}
    context = helm.pod(objects)["securityContext"]
    added = {name: context[name] for name in ("runAsNonRoot", "runAsUser", "seccompProfile")}
    assert CONTAINER["securityContext"] == {**ours["securityContext"], **added}
    for name in ("image", "resources", "volumeMounts"):
        assert CONTAINER[name] == ours[name]
    assert RUNTIME["volumes"] == helm.pod(objects)["volumes"]
    assert ENVIRONMENT.items() >= helm.environment(objects).items()
    for name in ("automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds"):
        assert PREDICTOR[name] == helm.pod(objects)[name]


@needs("kubernetes_validate")
def test_a_pod_of_the_runtime_is_valid():
    names = ("automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds")
    pod = {name: PREDICTOR[name] for name in names} | {name: RUNTIME[name] for name in ("containers", "volumes")}
    helm.validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod})
