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
        _leave_out(f"not installed: {', '.join(missing)} (docs/operations.md, Tests)")
    if os.geteuid() != 0:
        _leave_out("stand-in images can be made by root only")
    directory = tmp_path_factory.mktemp("containers")
    configuration = directory / "containers.conf"
    configuration.write_text(podman.CONFIGURATION)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(configuration))
        yield directory


def _leave_out(reason: str) -> None:
    """Skip a test, or fail where `make test-containers` asked for it."""
    if os.environ.get("SOFTSERVE_REQUIRE_CONTAINERS"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def image(engine: Path) -> str:
    """The image of the service, built from the Dockerfile as it stands."""
    podman.build("cpu", podman.IMAGE, podman.ensure_base(engine))
    return podman.IMAGE
