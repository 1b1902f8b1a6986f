"""What the tests that run containers need; they are skipped where it is missing."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import podman

_COMMANDS = ("buildah", "mmdebstrap", "podman", "runc")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for images that are being made, and podman set up to run without systemd."""
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("stand-in images can be made by root only")
    directory = tmp_path_factory.mktemp("containers")
    configuration = directory / "containers.conf"
    configuration.write_text(podman.CONFIGURATION)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(configuration))
        yield directory


@pytest.fixture(scope="session")
def image(engine: Path) -> str:
    """The image of the service, built from the Dockerfile as it stands."""
    podman.ensure_base(engine)
    podman.build("cpu", podman.IMAGE)
    return podman.IMAGE
