"""The Helm chart: rendered objects, refused values, and agreement with the code."""

import json
import re
import shutil
import tomllib

import pytest
import yaml

from service.http import health, key_file
from service.http.key_file import read_keys
from service.server import multiprocess
from service.settings import Settings
from tests.containers.files import COMPOSE, DASHBOARD, DOCKER, ROOT, SIGNATURES, rules
from tests.containers.helm import (
    CHART,
    NAMESPACE,
    OTHERS,
    RELEASE,
    combinations,
    container,
    environment,
    file_values,
    pod,
    rendered,
    switched,
)
from tests.fixtures.optional_tools import needs

pytestmark = needs("helm_python", "kubernetes_validate")

DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
EXAMPLES = ("values-cpu.yaml", "values-gpu.yaml")
KEY = "0123456789abcdef"
PEM = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"
RUNBOOK = "http://127.0.0.1:3000/d/softserve-runbook"


def refused(values):
    from helm_python import HelmValuesError

    with pytest.raises(HelmValuesError) as caught:
        rendered(values)
    return str(caught.value)


@pytest.mark.parametrize("name", [None, *EXAMPLES])
def test_helm_lint_finds_nothing_but_the_missing_icon(name):
    import helm_python

    report = helm_python.lint(CHART, file_values(name) if name else None, strict=True)
    assert report["errors"] == []
    assert [message["error"] for message in report["messages"]] == ["icon is recommended"]


def test_every_combination_of_switches_is_valid_for_three_versions_of_kubernetes_or_refused(tmp_path):
    """`rendered` validates the objects. Helm compiles the schema anew for each release, which is too slow here."""
    import helm_python
    import jsonschema_rs

    shutil.copytree(CHART, tmp_path / "chart")
    (tmp_path / "chart" / "values.schema.json").unlink()
    chart = helm_python.Chart.load(tmp_path / "chart")
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = jsonschema_rs.Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
    kinds = {
        "hpa": "HorizontalPodAutoscaler",
        "keda": "ScaledObject",
        "serviceMonitor": "ServiceMonitor",
        "prometheusRule": "PrometheusRule",
        "dashboards": "ConfigMap",
        "networkPolicy": "NetworkPolicy",
        "podDisruptionBudget": "PodDisruptionBudget",
        "serviceAccount": "ServiceAccount",
    }
    valid = 0
    for states in combinations():
        values = switched(states)
        accepted = schema.is_valid(defaults | {name: defaults[name] | value for name, value in values.items()})
        scraped = states["serviceMonitor"] or not (states["keda"] or states["prometheusRule"])
        assert accepted is (scraped and not (states["keda"] and states["hpa"]))
        if not accepted:
            continue
        objects = rendered(values, chart)
        assert objects.keys() == {"Deployment", "Service"} | {kinds[name] for name in kinds if states[name]}
        assert ("replicas" in objects["Deployment"]["spec"]) is not (states["hpa"] or states["keda"])
        assert ("topologySpreadConstraints" in pod(objects)) is states["topologySpread"]
        valid += 1
    assert valid == 256


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_valid(name):
    objects = rendered(file_values(name))
    assert container(objects)["image"] == f"softserve:{name[7:10]}"


def test_a_gpu_is_asked_for_and_used(monkeypatch):
    objects = rendered(file_values("values-gpu.yaml"))
    assert container(objects)["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert settings(objects, monkeypatch).device == "cuda"
    assert objects["Deployment"]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize("keys", [{}, {"existingSecret": "own"}, {"keys": [KEY, KEY[::-1]]}])
@pytest.mark.parametrize(
    "models",
    [
        {},
        {"existingClaim": "bundles"},
        {"existingClaim": "bundles", "bundled": False, "subPath": "a"},
        {"download": {"image": "rclone", "args": ["copy"], "envFrom": [{"secretRef": {"name": "s3"}}]}},
        {"download": {"image": "rclone", "command": ["sh"], "env": [{"name": "A", "value": "b"}]}, "bundled": False},
    ],
)
def test_keys_and_models_are_mounted_where_the_settings_look(keys, models, monkeypatch, tmp_path):
    objects = rendered({"apiKeys": keys, "models": models})
    found = settings(objects, monkeypatch)
    mounts = {mount["name"]: mount for mount in container(objects)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod(objects)["volumes"]}
    assert mounts.keys() == volumes.keys()
    *_, own = json.loads(re.search(r"SOFTSERVE_MODEL_DIRS='(.+)'", DOCKERFILE)[1])
    if models:
        assert (mounts["models"]["mountPath"], mounts["models"]["readOnly"]) == (own, True)
        assert [str(path) for path in found.model_dirs] == ["/models"] or models.get("bundled", True)
    if "download" in models:
        (first,) = pod(objects)["initContainers"]
        assert {"name": "models", "mountPath": own} in first["volumeMounts"]
        assert first["securityContext"] == container(objects)["securityContext"]
    assert (found.api_keys is not None) is bool(keys)
    if keys:
        secret = volumes["api-keys"]["secret"]
        assert str(found.api_keys) == f"{mounts['api-keys']['mountPath']}/{secret['items'][0]['path']}"
        assert secret["secretName"] == keys.get("existingSecret", f"{RELEASE}-softserve-api-keys")
    if "keys" in keys:
        file = tmp_path / "keys"
        file.write_text(objects["Secret"]["stringData"]["api-keys"])
        assert objects["Secret"]["metadata"]["name"] == secret["secretName"]
        assert read_keys(file) == keys["keys"]


@pytest.mark.parametrize("signed", [{"publicKey": PEM}, {"existingConfigMap": "keys", "key": "root.pem"}])
def test_the_public_key_of_signatures_is_mounted_where_the_setting_looks(signed, monkeypatch):
    objects = rendered({"requireSignature": signed})
    (mount,) = [each for each in container(objects)["volumeMounts"] if each["name"] == "public-key"]
    (volume,) = [each["configMap"] for each in pod(objects)["volumes"] if each["name"] == "public-key"]
    ((entry, path),) = [each.values() for each in volume["items"]]
    assert mount["readOnly"] is True
    assert str(settings(objects, monkeypatch).require_signature) == f"{mount['mountPath']}/{path}"
    assert volume["name"] == signed.get("existingConfigMap", f"{RELEASE}-softserve-public-key")
    assert entry == signed.get("key", "signing.pub")
    if "publicKey" in signed:
        assert objects["ConfigMap"]["metadata"]["name"] == volume["name"]
        assert objects["ConfigMap"]["data"] == {entry: PEM}


def test_pods_are_replaced_where_the_public_key_changes():
    found = [
        rendered({"requireSignature": {"publicKey": pem}})["Deployment"]["spec"]["template"]["metadata"]["annotations"]
        for pem in (PEM, PEM.replace("MFkw", "MHYw"))
    ]
    assert found[0] != found[1]


def test_signatures_are_required_as_with_compose():
    values = {"requireSignature": {"publicKey": PEM}, "models": {"bundled": False, "existingClaim": "bundles"}}
    of_compose = SIGNATURES["services"]["softserve"]["environment"]
    found = {name: value for name, value in environment(rendered(values)).items() if name in of_compose}
    assert found == {name: re.sub(r"\$\{\w+:-(.+)\}", r"\1", value) for name, value in of_compose.items()}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"hpa": {"enabled": True}, "keda": {"enabled": True}, "serviceMonitor": {"enabled": True}}, "not"),
        ({"keda": {"enabled": True}}, "/serviceMonitor/enabled"),
        ({"prometheusRule": {"enabled": True}}, "/serviceMonitor/enabled"),
        ({"replica": 3}, "replica"),
        ({"image": {"tags": "cpu"}}, "tags"),
        ({"probes": {"startup": {"path": "/"}}}, "path"),
        ({"settings": {"max_wiat_ms": 500}}, "max_wiat_ms"),
        ({"settings": {"port": 9000}}, "port"),
        ({"models": {"bundled": False}}, "/models"),
        ({"models": {"subPath": "a"}}, "/models/existingClaim"),
        ({"models": {"existingClaim": "a", "download": {"image": "b"}}}, "/models"),
        ({"apiKeys": {"keys": [KEY[1:]]}}, "/apiKeys/keys/0"),
        ({"apiKeys": {"keys": [f"#{KEY}"]}}, "/apiKeys/keys/0"),
        ({"apiKeys": {"keys": [KEY], "existingSecret": "a"}}, "/apiKeys"),
        ({"requireSignature": {"publicKey": PEM, "existingConfigMap": "a"}}, "/requireSignature"),
        ({"requireSignature": {"publicKey": "signing.pub"}}, "/requireSignature/publicKey"),
        ({"requireSignature": {"publicKey": PEM + PEM.replace("PUBLIC", "PRIVATE")}}, "/requireSignature/publicKey"),
        ({"requireSignature": {"publicKey": PEM}, "settings": {"map_weights": True}}, "/settings/map_weights"),
        ({"settings": {"require_signature": "/a"}}, "require_signature"),
        ({"rollingUpdate": {"maxSurge": 0}}, "/rollingUpdate"),
        ({"shutdown": {"timeoutSeconds": 0}}, "/shutdown/timeoutSeconds"),
        ({"keda": {"targetRefusedRatio": 2}}, "/keda/targetRefusedRatio"),
    ],
)
def test_values_that_cannot_work_are_refused(values, named):
    assert named in refused(values)


def test_no_object_of_values_may_have_unknown_ones():
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    def check(part, given):
        assert (part["additionalProperties"], part["properties"].keys()) == (False, given.keys())
        for name, value in given.items():
            if isinstance(value, dict) and "properties" in part["properties"][name]:
                check(part["properties"][name], value)

    del schema["properties"]["global"]  # Helm's own
    check(schema, defaults)


# ---- agreement with the code ----


def settings(objects, monkeypatch):
    """What the service reads from the environment of the container."""
    with monkeypatch.context() as patch:
        for name, value in environment(objects).items():
            patch.setenv(name, value)
        return Settings()


def test_probes_ask_the_paths_and_the_port_of_the_service():
    paths = {route.path for route in health.router.routes}
    found = container(rendered())
    (port,) = found["ports"]
    assert port["containerPort"] == Settings().port
    assert f"\nEXPOSE {port['containerPort']}\n" in DOCKERFILE
    asked = {name: found[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in asked.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {probe["path"] for probe in asked.values()} | {"/metrics"} <= paths
    assert {probe["port"] for probe in asked.values()} == {port["name"]}


def test_service_policy_and_monitor_lead_to_the_port_of_the_pods():
    objects = rendered(switched({"serviceMonitor": True, "networkPolicy": True}))
    (port,) = container(objects)["ports"]
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"].items() <= labels.items()
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert [each["targetPort"] for each in objects["Service"]["spec"]["ports"]] == [port["name"]]
    assert [each["port"] for each in objects["NetworkPolicy"]["spec"]["ingress"][0]["ports"]] == [port["name"]]
    (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == (objects["Service"]["spec"]["ports"][0]["name"], "/metrics")
    service = objects["Service"]["metadata"]["labels"]
    assert objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= service.items()


def test_the_job_is_the_one_that_the_rules_ask_for():
    objects = rendered(switched({"serviceMonitor": True}))
    job = objects["Service"]["metadata"]["labels"][objects["ServiceMonitor"]["spec"]["jobLabel"]]
    asked = set(re.findall(r'job="(\w+)"', json.dumps([rules("alerts.yml"), rules("recording.yml"), DASHBOARD])))
    assert {name.strip("\\") for name in asked} <= {job}


@pytest.mark.parametrize("values", [{}, {"shutdown": {"drainDelaySeconds": 20, "timeoutSeconds": 100}}])
def test_a_pod_has_the_time_that_it_takes_to_stop(values, monkeypatch):
    objects = rendered(values)
    found = settings(objects, monkeypatch)
    given = values.get("shutdown", {"drainDelaySeconds": 5, "timeoutSeconds": 30})
    assert (found.drain_delay, found.shutdown_timeout) == (given["drainDelaySeconds"], given["timeoutSeconds"])
    needed = found.drain_delay + found.shutdown_timeout + multiprocess._GRACE
    assert pod(objects)["terminationGracePeriodSeconds"] > needed


def test_the_defaults_of_the_image_and_the_chart_agree(monkeypatch):
    found = settings(rendered(), monkeypatch)
    assert float(re.search(r"SOFTSERVE_DRAIN_DELAY=(\S+)", DOCKERFILE)[1]) == found.drain_delay
    assert found.shutdown_timeout == Settings().shutdown_timeout


def test_settings_reach_the_service(monkeypatch):
    values = {
        "max_wait_ms": 1500,
        "max_queue_tokens": 1048576,
        "batch_cost": 12.5,
        "access_log": True,
        "models": ["de-en", "intents:2"],
        "log_level": "debug",
    }
    found = settings(rendered({"settings": values}), monkeypatch)
    assert {name: getattr(found, name) for name in values} == {**values, "models": ("de-en", "intents:2")}


def test_pods_may_no_more_than_the_containers_of_compose():
    objects = rendered()
    uid = int(re.search(r"\nUSER (\d+):\1\n", DOCKERFILE)[1])
    context = pod(objects)["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (uid, uid, uid)
    assert context["runAsNonRoot"] is True
    assert container(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    compose = COMPOSE["services"]["softserve"]
    (size,) = re.findall(r"size=\${MEMORY:-(\d+)g}", compose["tmpfs"][0])  # as large as the memory, which it counts as
    assert {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": f"{size}Gi"}} in pod(objects)["volumes"]
    assert pod(objects)["enableServiceLinks"] is False
    assert pod(objects)["automountServiceAccountToken"] is False
    assert objects["ServiceAccount"]["automountServiceAccountToken"] is False


def test_keys_are_as_long_as_the_service_wants_them():
    assert len(KEY) == key_file._SHORTEST
    assert rendered({"apiKeys": {"keys": [KEY]}})


def test_rules_and_dashboards_are_those_of_compose():
    """But for the selector and the labels of the release; `test_helm_rules.py` runs them."""
    objects = rendered(switched({"serviceMonitor": True, "prometheusRule": True, "dashboards": True}))
    found = [rule for group in objects["PrometheusRule"]["spec"]["groups"] for rule in group["rules"]]
    own = {"namespace": NAMESPACE, "service": objects["Service"]["metadata"]["name"]}
    selector = ", ".join(f'{name}="{value}"' for name, value in own.items())
    for rule in found:
        rule["expr"] = rule["expr"].replace(f"{{{selector}, ", "{").replace(f"{{{selector}}}", "")
        assert own.items() <= rule["labels"].items()
        rule["labels"] = {name: value for name, value in rule["labels"].items() if name not in own}
    recorded = [{"labels": {}, **rule} for rule in rules("objectives.yml") + rules("recording.yml")]
    alerts = json.dumps(rules("alerts.yml")).replace("{{ $externalLabels.runbook }}", RUNBOOK)
    assert found == recorded + json.loads(alerts)
    dashboards = {path.name: json.loads(path.read_text()) for path in (DOCKER / "grafana/dashboards").glob("*.json")}
    assert {name: json.loads(text) for name, text in objects["ConfigMap"]["data"].items()} == dashboards


def test_an_archive_of_the_chart_is_complete(tmp_path):
    import helm_python

    with helm_python.Chart.load(helm_python.package(CHART, destination=tmp_path)) as packed:
        values = switched(dict.fromkeys(("serviceMonitor", "prometheusRule", "dashboards", "keda"), True))
        assert rendered(values, packed) == rendered(values)


def test_the_chart_is_of_the_version_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == project["version"]


# ---- kinds of operators ----


@needs("cloudcoil")
def test_objects_of_operators_have_no_field_that_these_do_not_know():
    """The models are of KEDA 2.16 and the Prometheus operator 0.80, the newest for this version of Python."""
    from cloudcoil.models.keda.v1alpha1 import ScaledObject
    from cloudcoil.models.prometheus_operator.v1 import PrometheusRule, ServiceMonitor

    values = switched(dict.fromkeys(("serviceMonitor", "prometheusRule", "keda"), True))
    values["keda"]["authentication"] = "prometheus"
    objects = rendered(values)
    assert objects["ScaledObject"]["spec"]["fallback"].pop("behavior") == "currentReplicasIfHigher"  # of KEDA 2.17
    kinds = {kind.__name__: kind for kind in (ScaledObject, ServiceMonitor, PrometheusRule)}
    assert kinds.keys() == OTHERS
    for name, kind in kinds.items():
        found = kind.model_validate(objects[name])
        assert found.model_dump(by_alias=True, exclude_unset=True, mode="json") == objects[name]


def test_series_of_other_releases_are_not_counted():
    objects = rendered(switched({"keda": True, "serviceMonitor": True}))
    service = objects["Service"]["metadata"]["name"]
    for trigger in objects["ScaledObject"]["spec"]["triggers"]:
        selectors = re.findall(r"softserve_\w+\{(.*?)\}", trigger["metadata"]["query"])
        assert selectors
        for selector in selectors:
            assert selector.startswith(f'namespace="{NAMESPACE}", service="{service}"')
