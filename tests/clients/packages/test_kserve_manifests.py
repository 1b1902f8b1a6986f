"""The manifests of docker/kserve, built from the models of KServe's package: unknown and missing fields are errors."""

import re
from pathlib import Path

import kserve
import kubernetes.client.models
import pytest
import yaml

DIRECTORY = Path(__file__).parents[3] / "docker" / "kserve"
SCALARS = {"str": str, "int": int, "bool": bool, "float": float}
KINDS = {
    "serving.kserve.io/v1alpha1": "V1alpha1ServingRuntime",
    "serving.kserve.io/v1beta1": "V1beta1InferenceService",
}


def build(kind, value, at=""):
    """Return a value as an object of that type; raise `AssertionError` or `ValueError` where it is none."""
    if found := re.fullmatch(r"[Ll]ist\[(.+)\]", kind):
        assert isinstance(value, list), at
        return [build(found[1], each, f"{at}[{number}]") for number, each in enumerate(value)]
    if found := re.fullmatch(r"[Dd]ict[\[(]str, (.+)[\])]", kind):
        assert isinstance(value, dict), at
        return {name: build(found[1], each, f"{at}.{name}") for name, each in value.items()}
    if kind in SCALARS:
        assert isinstance(value, SCALARS[kind]), at
        return value
    model = getattr(kserve, kind, None) or getattr(kubernetes.client.models, kind, None)
    if model is None:
        assert kind in ("IntOrString", "ResourceQuantity", "object"), f"{at} is of the unknown type {kind}"
        return value
    fields = {name: field for field, name in model.attribute_map.items()}
    assert isinstance(value, dict), at
    assert value.keys() <= fields.keys(), f"KServe does not know {value.keys() - fields.keys()} of {at}"
    types = {name: model.openapi_types[field] for name, field in fields.items()}
    return model(**{fields[name]: build(types[name], each, f"{at}.{name}") for name, each in value.items()})


@pytest.mark.parametrize("name", ["serving-runtime", "inference-service"])
def test_kserve_knows_every_field(name):
    manifest = yaml.safe_load((DIRECTORY / f"{name}.yaml").read_text())
    kind = KINDS[manifest["apiVersion"]]
    assert kind.endswith(manifest["kind"])
    assert build(kind, manifest).metadata.name == manifest["metadata"]["name"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("V1beta1InferenceService", {"spec": {"predictor": {"minReplica": 1}}}),
        ("V1beta1InferenceService", {"spec": {}}),
        ("V1beta1InferenceService", {"spec": {"predictor": {"model": {"modelFormat": "softserve"}}}}),
        ("V1alpha1ServingRuntime", {"spec": {"containers": [{"image": "a"}]}}),
        ("V1alpha1ServingRuntime", {"spec": {"containers": [{"name": "a", "securityContext": {"user": 1}}]}}),
        ("V1alpha1ServingRuntime", {"spec": {"containers": [], "protocolVersions": "v2"}}),
    ],
)
def test_other_fields_are_errors(kind, value):
    with pytest.raises((AssertionError, ValueError)):
        build(kind, value)
