"""What the images install: pinned, with hashes, and what pyproject.toml asks for in the tested versions."""

import importlib.metadata
import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.containers.files import DOCKER, ROOT, normalized, requirements

LOCKS = ["requirements-build.txt", "requirements-cpu.txt", "requirements-gpu.txt", "requirements-signing.txt"]
EXTRAS = ["documents", "markup", "otel"]
"""What the images have, so that documents, stored glossaries and formats of texts need no other image."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONSTRAINTS = {
    normalized(name): version
    for name, _, version in (line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
}


def wanted(asked):
    return [requirement for requirement in map(Requirement, asked) if not requirement.marker or _here(requirement)]


def _here(requirement):
    return requirement.marker.evaluate({"platform_python_implementation": "CPython", "sys_platform": "linux"})


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_hashes(lock):
    found = requirements(lock)
    assert len(found) >= 5
    assert all(hashes >= 1 for _, hashes in found.values())


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_an_index_or_a_host(lock):
    assert not re.search(r"://|index-url|find-links|trusted-host", (DOCKER / lock).read_text())


@pytest.mark.parametrize("lock", LOCKS)
def test_versions_are_those_that_are_tested(lock):
    found = {name: version for name, (version, _) in requirements(lock).items()}
    assert found.items() & CONSTRAINTS.items() == {pair for pair in found.items() if pair[0] in CONSTRAINTS}


@pytest.mark.parametrize("lock", ["requirements-cpu.txt", "requirements-gpu.txt"])
def test_what_the_project_needs_is_locked(lock):
    """Where this fails, a dependency is new or its bound has changed: `make lock`."""
    found = requirements(lock)
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *(each for name in EXTRAS for each in extras[name])]
    for requirement in wanted(each for each in asked if not each.startswith("softserve[")):
        name = normalized(requirement.name)
        if (lock, name) == ("requirements-gpu.txt", "onnxruntime"):
            name = "onnxruntime-gpu"
        assert name in found, f"{name} is not locked: make lock"
        assert requirement.specifier.contains(found[name][0])


@pytest.mark.parametrize("lock", ["requirements-cpu.txt", "requirements-gpu.txt"])
def test_the_packages_that_check_signatures_are_complete_with_those_of_an_image(lock):
    """The build argument EXTRA=signing installs both locks, neither with its dependencies."""
    present, added = requirements(lock), requirements("requirements-signing.txt")
    assert not added.keys() & present.keys()
    asked = [each for name in added for each in importlib.metadata.requires(name) or ()]
    for requirement in wanted([*PROJECT["project"]["optional-dependencies"]["signing"], *asked]):
        version, _ = (present | added)[normalized(requirement.name)]
        assert requirement.specifier.contains(version)


def test_what_builds_the_wheel_is_locked():
    found = requirements("requirements-build.txt")
    for requirement in wanted(PROJECT["build-system"]["requires"]):
        assert requirement.specifier.contains(found[requirement.name][0])


def test_an_image_has_one_onnxruntime_and_no_torch():
    cpu, gpu = requirements("requirements-cpu.txt"), requirements("requirements-gpu.txt")
    assert "onnxruntime" in cpu
    assert "onnxruntime" not in gpu
    assert gpu["onnxruntime-gpu"][0] == cpu["onnxruntime"][0] == CONSTRAINTS["onnxruntime"]
    assert not {"torch", "huggingface-hub"} & (cpu.keys() | gpu.keys())
    assert "onnxruntime-gpu" not in cpu


def test_the_gpu_image_has_the_libraries_of_cuda():
    libraries = {name for name in requirements("requirements-gpu.txt") if name.startswith("nvidia-")}
    assert {"nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cufft", "nvidia-curand"} <= libraries
    assert any(name.startswith("nvidia-cudnn") for name in libraries)


def test_apart_from_cuda_both_images_are_the_same():
    cpu, gpu = requirements("requirements-cpu.txt"), requirements("requirements-gpu.txt")
    different = {name for name in cpu.keys() | gpu.keys() if cpu.get(name) != gpu.get(name)}
    assert {name for name in different if not name.startswith("nvidia-")} == {"onnxruntime", "onnxruntime-gpu"}
