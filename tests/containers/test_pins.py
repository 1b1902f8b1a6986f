"""docker/pins.py, with a program in place of skopeo, for no registry can be asked."""

import hashlib
import os
import shutil
import subprocess
import sys

import pytest

from tests.containers.files import COMPOSE, DOCKERFILE, ROOT

IMAGES = [service["image"] for service in COMPOSE["services"].values() if "build" not in service]


@pytest.fixture
def copy(tmp_path):
    """The pinned files in a directory of their own, and a skopeo whose every index is the image's name."""
    (tmp_path / "docker").mkdir()
    for name in ("compose.yaml", "docker/Dockerfile", "docker/pins.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    skopeo = tmp_path / "skopeo"
    skopeo.write_text(f'#!{sys.executable}\nimport sys\nprint(sys.argv[-1].removeprefix("docker://"), end="")\n')
    skopeo.chmod(0o755)
    return tmp_path


def pin(directory, *arguments):
    command = [sys.executable, str(directory / "docker/pins.py"), *arguments]
    environment = os.environ | {"PATH": str(directory)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_images_are_pinned_by_what_the_registry_has(copy):
    assert pin(copy).returncode == 0
    text = (copy / "compose.yaml").read_text() + (copy / "docker/Dockerfile").read_text()
    for image in [*IMAGES, DOCKERFILE.partition("\nARG PYTHON=")[2].partition("\n")[0]]:
        name = image.partition("@")[0]
        assert text.count(f"{name}@sha256:{hashlib.sha256(name.encode()).hexdigest()}\n") == 1
    assert pin(copy, "--check").returncode == 0


def test_a_digest_that_differs_is_reported_and_not_written(copy):
    before = (copy / "compose.yaml").read_text()
    checked = pin(copy, "--check")
    assert checked.returncode == 1
    assert IMAGES[0].partition("@")[0] in checked.stderr
    assert (copy / "compose.yaml").read_text() == before
