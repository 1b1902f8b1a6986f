"""Building and running containers where there is no Docker engine: podman, buildah, and stand-ins for images.

Images that cannot be pulled are made from Debian's packages, under names of their own. The mirror is the one that this
machine's apt uses.
"""

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.containers.files import COMPOSE, DOCKER, ROOT

BASE = re.search(r"^ARG PYTHON=(\S+)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)[1]  # type: ignore[index]
IMAGE = "localhost/softserve-test/service:cpu"
_STAND_IN = "localhost/softserve-test/"

# Without systemd and without a bridge between containers.
CONFIGURATION = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
netns = "host"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""

_BASE_HOOKS = (
    'rm -f "$1"/usr/lib/python3.*/EXTERNALLY-MANAGED; ln -sf python3 "$1"/usr/bin/python',
    'chroot "$1" apt-get purge --quiet --yes perl "libperl*" "perl-modules*"',
)
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def run(*command: str, timeout: float = 60, **options: Any) -> str:
    """Standard output of a command; raises with both outputs where it fails."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    finished = subprocess.run(command, cwd=ROOT, text=True, timeout=timeout, **options)
    if finished.returncode:
        raise RuntimeError(f"{' '.join(command)}: {finished.returncode}\n{finished.stdout}\n{finished.stderr}")
    return finished.stdout.strip()


def ensure_base(directory: Path) -> str:
    """The image that the Dockerfile starts from, pulled, or Python and pip of Debian; returns its name."""
    packages = "python3,python3-venv,python3-pip,ca-certificates"
    return _ensure(BASE, "python", directory, packages, _BASE_HOOKS, ('CMD ["python3"]',))


def ensure_monitoring(service: str, directory: Path) -> str:
    """The image of Prometheus or Alertmanager in compose.yaml, pulled, or Debian's package; returns its name."""
    program = {"prometheus": "prometheus", "alertmanager": "prometheus-alertmanager"}[service]
    hook = f'mkdir -p "$1"/{service}; chown 65534:65534 "$1"/{service}'
    changes = (f'ENTRYPOINT ["{program}"]', "USER 65534")
    return _ensure(COMPOSE["services"][service]["image"], service, directory, f"{program},wget", (hook,), changes)


def _ensure(
    image: str, stand_in: str, directory: Path, packages: str, hooks: Sequence[str], changes: Sequence[str]
) -> str:
    name = _STAND_IN + stand_in
    for present in (image, name):
        if _succeeds("podman", "image", "exists", present):
            return present
    if _succeeds("podman", "pull", "--quiet", image):
        return image
    archive = directory / "image.tar"
    without = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "locale", "man")]
    hooked = [f"--customize-hook={hook}" for hook in hooks]
    command = ("mmdebstrap", "--variant=minbase", f"--include={packages}", *without, *hooked)
    run(*command, "bookworm", str(archive), _mirror(), timeout=600)
    run("podman", "import", "--quiet", *(f"--change={change}" for change in changes), str(archive), name, timeout=300)
    archive.unlink()
    return name


def _succeeds(*command: str) -> bool:
    try:
        run(*command, timeout=120)
    except (RuntimeError, subprocess.TimeoutExpired):
        return False
    return True


def _mirror() -> str:
    """Return the address of Debian's packages, as apt has it."""
    lines = [
        line
        for path in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*")))
        if path.suffix in (".list", ".sources") and path.is_file()
        for line in path.read_text().splitlines()
    ]
    for line in lines:
        if found := re.match(r"(?:deb\s+(?:\[.*?\]\s+)?|URIs:\s*)(\S+)", line):
            return found[1]
    raise RuntimeError("no Debian mirror among the sources of apt")


def build(target: str, tag: str, base: str, *arguments: str) -> None:
    """Builds a target of the Dockerfile, with build arguments such as `EXTRA=signing`."""
    certificates = ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.is_file() else []
    options = ["--format", "docker", "--pull-never", "--isolation", "chroot", "--network", "host", "--target", target]
    options += [f"--build-arg={argument}" for argument in (f"PYTHON={base}", *arguments)]
    run("buildah", "bud", *options, *certificates, "--tag", tag, "--file", "docker/Dockerfile", ".", timeout=900)


def ask(url: str, body: object = None, timeout: float = 30) -> tuple[int, str]:
    """Status and text of an answer; raises `OSError` where there is none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wait_for(url: str, seconds: float) -> None:
    """Waits until a page is answered with 200, that long at most."""
    started = time.monotonic()
    while True:
        try:
            if ask(url, timeout=5)[0] == 200:
                return
        except OSError:
            pass
        assert time.monotonic() - started < seconds, f"{url} does not answer"
        time.sleep(0.02)
