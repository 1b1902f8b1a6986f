"""compose.yaml and the Dockerfile: who may do what, and whether the tools find fault."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from service.settings import Settings
from tests.containers.files import COMPOSE, DOCKER, DOCKERFILE, ROOT, SIGNATURES

SERVICES = COMPOSE["services"]
FILES = ["compose.yaml", "docker/host.yaml", "docker/database.yaml", "docker/signatures.yaml"]
DATABASE = yaml.safe_load((DOCKER / "database.yaml").read_text(encoding="utf-8"))
HOST = yaml.safe_load((DOCKER / "host.yaml").read_text(encoding="utf-8"))["services"]


def tool(name):
    """A command of the environment that runs the tests, or of the machine."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def checked(*command):
    executable = tool(command[0])
    if executable is None:
        pytest.skip(f"{command[0]} is not installed")
    finished = subprocess.run([executable, *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_compose_follows_its_schema():
    checked("check-jsonschema", "--builtin-schema", "vendor.compose-spec", *FILES)


@pytest.mark.parametrize("name", HOST)
def test_on_the_network_of_the_host_services_differ_in_their_address_alone(name):
    assert HOST[name]["network_mode"] == "host"
    addresses = r"(web\.listen-address=)(127\.0\.0\.1)?"
    commands = [[re.sub(addresses, r"\1", word) for word in each[name].get("command", [])] for each in (SERVICES, HOST)]
    assert sorted(commands[0]) == sorted(commands[1])
    assert "127.0.0.1" in json.dumps(HOST[name].get("environment", HOST[name].get("command")))


def test_labels_name_the_version_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f'org.opencontainers.image.version="{project["version"]}"' in DOCKERFILE
    assert f'org.opencontainers.image.licenses="{project["license"]}"' in DOCKERFILE


def test_hadolint_finds_no_fault():
    checked("hadolint", "docker/Dockerfile")


def test_a_plain_up_starts_the_service_and_what_monitors_it():
    started = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert started == {"softserve", "prometheus", "alertmanager", "grafana"}


@pytest.mark.parametrize("name", SERVICES)
def test_no_container_may_more_than_it_must(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "user", "pid", "network_mode"} & service.keys()


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_bounded_checked_and_restarted(name):
    service = SERVICES[name]
    assert {"cpus", "memory", "pids"} == service["deploy"]["resources"]["limits"].keys()
    assert service["memswap_limit"] == service["deploy"]["resources"]["limits"]["memory"], "memory is not swapped"
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_machine_alone(name):
    assert all(port.startswith(("127.0.0.1:", "${BIND:-127.0.0.1}:")) for port in SERVICES[name]["ports"])


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" not in service])
def test_images_of_others_are_pinned(name):
    assert re.fullmatch(r"docker\.io/\w+/\w+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", SERVICES[name]["image"])


def test_the_base_image_is_pinned():
    assert re.search(
        r"^ARG PYTHON=docker\.io/library/python:3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}$", DOCKERFILE, re.M
    )


def test_on_a_gpu_the_other_image_answers_under_the_same_name():
    service = SERVICES["softserve-gpu"]
    assert service["profiles"] == ["gpu"]
    assert service["build"]["target"] == "gpu"
    assert service["networks"]["default"]["aliases"] == ["softserve"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


@pytest.mark.parametrize("name", ["softserve", "softserve-gpu"])
def test_the_service_is_given_the_time_it_may_take_to_stop(name):
    delay = float(re.search(r" SOFTSERVE_DRAIN_DELAY=(\S+)", DOCKERFILE)[1])
    needed = delay + Settings.model_fields["shutdown_timeout"].default
    assert delay == 5
    assert float(SERVICES[name]["stop_grace_period"].removesuffix("s")) > needed


@pytest.mark.parametrize("name", ["softserve", "softserve-gpu"])
def test_what_compose_sets_is_a_setting(name):
    settings = {f"SOFTSERVE_{field.upper()}" for field in Settings.model_fields}
    assert SERVICES[name]["environment"].keys() <= settings


@pytest.mark.parametrize("name", ["softserve", "softserve-gpu"])
def test_a_database_is_in_a_volume_that_the_user_of_the_image_can_write(name, monkeypatch):
    service = DATABASE["services"][name]
    assert DATABASE["services"].keys() <= SERVICES.keys()
    assert service.keys() == {"environment", "volumes"}
    ((setting, value),) = service["environment"].items()
    default = re.fullmatch(r"\$\{SOFTSERVE_DATABASE:-(.+)\}", value)[1]
    monkeypatch.setenv(setting, default)
    assert Settings().database == default
    volume, _, directory = service["volumes"][0].partition(":")
    assert volume in DATABASE["volumes"]
    assert Path(default.removeprefix("sqlite:///")).parent == Path(directory)
    assert re.search(rf"install --directory --owner softserve [^&]* {directory}\n", DOCKERFILE)


@pytest.mark.parametrize("name", ["softserve", "softserve-gpu"])
def test_an_image_that_checks_signatures_is_another_one(name):
    """It has a name of its own, and the packages of the lock that the build argument names."""
    plain, signed = SERVICES[name], SIGNATURES["services"][name]
    assert SIGNATURES["services"].keys() <= SERVICES.keys()
    assert signed["image"] == f"{plain['image']}-signing"
    assert signed["build"] == {"args": {"EXTRA": "signing"}}
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.+?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))
    packages = stages[f"{plain['build']['target']}-packages"]
    assert 'ARG EXTRA=""\n' in packages
    assert 'ARG EXTRA=""\n' in stages["sbom"]
    assert " docker/requirements-signing.txt docker/\n" in packages
    assert "${EXTRA:+--requirement docker/requirements-$EXTRA.txt}" in packages
    assert "${EXTRA:+docker/requirements-$EXTRA.txt}" in stages["sbom"]


@pytest.mark.parametrize("name", ["softserve", "softserve-gpu"])
def test_the_public_key_is_mounted_where_the_setting_looks(name):
    service = SIGNATURES["services"][name]
    (mount,) = service["volumes"]
    assert service["environment"].keys() <= {f"SOFTSERVE_{field.upper()}" for field in Settings.model_fields}
    assert service["environment"]["SOFTSERVE_REQUIRE_SIGNATURE"] == mount["target"]
    assert (mount["type"], mount["read_only"], mount["bind"]) == ("bind", True, {"create_host_path": False})
    assert mount["source"].startswith("${PUBLIC_KEY:?")


def test_the_image_runs_as_any_user():
    final = DOCKERFILE.partition(" AS runtime\n")[2]
    assert "\nUSER 65532:65532\n" in final
    assert "HEALTHCHECK" in final
    assert 'ENTRYPOINT ["softserve"]' in final  # no shell between it and SIGTERM
    assert "ORT_DISABLE_TELEMETRY=1" in final


def test_the_default_target_is_the_processor():
    assert DOCKERFILE.rpartition("\nFROM ")[2].startswith("runtime AS cpu\n")
