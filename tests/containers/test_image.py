"""The image, built and run: bounded, read-only, as an unprivileged user. `make test-containers`."""

import json
import re
import shutil
import subprocess
import time
import tomllib

import pytest

from tests.containers import podman
from tests.containers.files import COMPOSE, normalized
from tests.containers.load import Load
from tests.support.ports import free_port

pytestmark = pytest.mark.containers

RESTRICTED = [
    *("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=65532", "--memory=1g"),
    *(f"--tmpfs={each}".replace("${MEMORY:-1g}", "1g") for each in COMPOSE["services"]["softserve"]["tmpfs"]),
]


class Container:
    """The service in a container, ready."""

    def __init__(self, image, *options):
        self.port = free_port()
        environment = [f"--env=SOFTSERVE_PORT={self.port}", "--env=SOFTSERVE_HOST=127.0.0.1"]
        started = time.monotonic()
        self.id = podman.run("podman", "run", "--detach", *RESTRICTED, *environment, *options, image)
        podman.wait_for(f"{self.url}/readyz", 60)
        self.seconds = time.monotonic() - started

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def remove(self):
        podman.run("podman", "rm", "--force", "--volumes", self.id)


@pytest.fixture(scope="module")
def start(image):
    running = []

    def started(*options):
        running.append(Container(image, *options))
        return running[-1]

    yield started
    for container in running:
        container.remove()


@pytest.fixture(scope="module")
def container(start):
    return start()


def inspected(name, path):
    return podman.run("podman", "inspect", "--format", path, name)


def test_the_image_is_small(image, engine):
    size = int(inspected(image, "{{.Size}}")) / 1e6
    base = int(inspected(podman.ensure_base(engine), "{{.Size}}")) / 1e6
    print(f"\nimage {size:.0f} MB, {base:.0f} MB of it the base")
    assert size < 450


def test_it_is_labelled(image):
    labels = json.loads(inspected(image, "{{json .Config.Labels}}"))
    project = tomllib.loads((podman.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert (found["version"], found["licenses"]) == (project["version"], project["license"])
    assert {"title", "description", "revision", "created"} <= found.keys()


def assert_packages_are_listed(container):
    document = json.loads(podman.run("podman", "exec", container.id, "cat", "/opt/softserve/sbom.cdx.json"))
    listed = {normalized(each["name"]): each["version"] for each in document["components"]}
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    installed = json.loads(podman.run("podman", "exec", container.id, "/opt/softserve/bin/python", "-c", code))
    installed = {normalized(name): version for name, version in installed.items()}
    assert document["metadata"]["component"]["version"] == installed.pop("softserve")
    assert listed == installed


def test_its_list_of_packages_is_complete(container):
    assert_packages_are_listed(container)


BYTECODE = """
import collections, pathlib
files = pathlib.Path("/opt/softserve/lib").rglob("*.pyc")
print(*collections.Counter(file.read_bytes()[4] for file in files).items())
"""


def test_its_bytecode_does_not_depend_on_modification_times(container):
    """The flags of a header are 1 where Python never compares the source (PEP 552), and 0 where it compares times."""
    kinds = podman.run("podman", "exec", container.id, "/opt/softserve/bin/python", "-c", BYTECODE)
    assert re.fullmatch(r"\(1, [1-9]\d*\)", kinds), kinds


def test_a_paused_service_goes_on(start):
    paused = start("--env=SOFTSERVE_HANG_TIMEOUT=3")
    podman.run("podman", "kill", "--signal=STOP", paused.id)
    time.sleep(4)
    podman.run("podman", "kill", "--signal=CONT", paused.id)
    time.sleep(4)
    assert podman.ask(f"{paused.url}/v1/classify", {"text": "book a table for two"})[0] == 200
    assert "Timeout" not in podman.run("podman", "logs", paused.id, stderr=subprocess.STDOUT)


LIBRARIES = "import fastapi, numpy, onnxruntime, prometheus_client, pydantic, tokenizers, uvicorn"


def imported(image):
    """Seconds that a container takes which only imports the libraries of the service."""
    started = time.monotonic()
    podman.run("podman", "run", "--rm", *RESTRICTED, "--entrypoint=/opt/softserve/bin/python", image, "-c", LIBRARIES)
    return time.monotonic() - started


def test_it_is_ready_within_five_seconds(image, start):
    """The best of three, for the machine may be busy with other things.

    A slow machine has six times as long as a container takes that only imports the libraries.
    """
    both = [(imported(image), start().seconds) for _ in range(3)]
    print("\nseconds for the libraries, and to ready:", *(f"{first:.1f} {second:.1f}" for first, second in both))
    libraries, ready = map(min, zip(*both, strict=True))
    assert ready < max(5, 6 * libraries)


def test_it_answers_with_every_bundled_model(container):
    models = {model["name"] for model in json.loads(podman.ask(f"{container.url}/v1/models")[1])["models"]}
    answers = [
        podman.ask(f"{container.url}/v1/next-word", {"context": "thank you very"}),
        podman.ask(f"{container.url}/v1/score", {"text": "see you tomorrow"}),
        podman.ask(f"{container.url}/v1/translate", {"text": "Guten Morgen!"}),
        podman.ask(f"{container.url}/v1/classify", {"text": "book a table for two"}),
    ]
    assert {status for status, _ in answers} == {200}
    assert {json.loads(text)["model"] for _, text in answers} == models == {"next-word", "de-en", "intents"}
    assert "much" in answers[0][1]
    assert "orning" in answers[2][1]


def test_it_is_healthy(container):
    podman.run("podman", "healthcheck", "run", container.id)


def test_a_stopped_service_is_not_healthy(start):
    paused = start()
    podman.run("podman", "kill", "--signal=STOP", paused.id)
    checked = subprocess.run(["podman", "healthcheck", "run", paused.id], capture_output=True, text=True, timeout=60)
    podman.run("podman", "kill", "--signal=CONT", paused.id)
    assert checked.returncode == 1


def test_it_runs_without_privileges_and_writes_nothing(container):
    status = podman.run("podman", "exec", container.id, "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == ["65532"] * 4
    assert fields["CapEff"].strip("0") == ""
    assert fields["NoNewPrivs"] == "1"
    with pytest.raises(RuntimeError, match=r"Read-only file system|Permission denied"):
        podman.run("podman", "exec", container.id, "python", "-c", "open('/opt/softserve/written', 'w')")


def test_it_has_one_onnxruntime_and_no_torch_and_no_pip(container):
    code = "import importlib.metadata as m; print(*sorted(d.metadata['Name'] for d in m.distributions()))"
    names = podman.run("podman", "exec", container.id, "/opt/softserve/bin/python", "-c", code).split()
    assert {"onnxruntime", "softserve"} <= set(names)
    assert not {"onnxruntime-gpu", "torch", "pip", "huggingface-hub"} & set(names)


@pytest.mark.parametrize("workers", [1, 2])
def test_prometheus_has_no_complaint_of_its_metrics(start, workers):
    container = start(f"--env=SOFTSERVE_WORKERS={workers}")
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    text = podman.ask(f"{container.url}/metrics")[1]
    assert podman.run("promtool", "check", "metrics", input=text) == ""


def test_models_of_the_user_are_served_too(start, tmp_path):
    source = podman.ROOT / "models/bundled/intents/2"
    shutil.copytree(source, tmp_path / "my-intents" / "7")
    manifest = tmp_path / "my-intents" / "7" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"name": "my-intents", "version": 7}))
    for path in [tmp_path, *tmp_path.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    served = start(f"--volume={tmp_path}:/models:ro")
    status, text = podman.ask(f"{served.url}/v1/classify", {"text": "book a table", "model": "my-intents"})
    assert (status, json.loads(text)["version"]) == (200, 7)


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_under_load_loses_no_answer(start, workers):
    """Whatever was sent a moment before the signal, or earlier, is answered, and the service ends with status 0."""
    stopped = start(f"--env=SOFTSERVE_WORKERS={workers}")
    with Load(stopped.port, clients=8) as load:
        time.sleep(3)
        signalled = time.monotonic()
        podman.run("podman", "kill", "--signal=TERM", stopped.id)
        status = podman.run("podman", "wait", stopped.id)
        seconds = time.monotonic() - signalled
    print(f"\n{len(load.answered)} answers, stopped after {seconds:.1f} s with status {status}")
    assert len(load.answered) > 20
    assert [what for sent, what in load.lost if sent < signalled] == []
    assert 500 not in load.answered
    assert status == "0"
