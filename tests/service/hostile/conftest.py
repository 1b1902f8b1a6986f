"""A server under a memory limit that all attacks of a module are made on."""

import json
import shutil

import pytest

from service.settings import BUNDLED, Settings
from tests.support.hostile.attack import delays, measure, violations
from tests.support.limited_server import LimitedServer
from tests.support.probe import LoopProbe

MEMORY_MB = 768
"""Three quarters of the container that the docs ask for; models take 420, the attacks up to 210."""
ATTEMPTS = 3
"""Other work on the machine delays the server too, so the bounds of time must hold in one attempt of these."""
MAX_PIXELS = 1 << 24


@pytest.fixture(scope="session")
def large_images(shapes_export, tmp_path_factory):
    """The directory of an image classifier that accepts images of 16 megapixels."""
    directory = tmp_path_factory.mktemp("large-images")
    bundle = shutil.copytree(shapes_export.path, directory / "shapes" / "1")
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    manifest["config"]["limits"]["max_pixels"] = MAX_PIXELS
    (bundle / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def flags(large_images):
    """Flags of the server: the defaults, with the bundled models, of words, and an image classifier."""
    return ["--model-dirs", BUNDLED, large_images, "--models", "intents", "de-en", "shapes", "next-word:4"]


class Target:
    """A server and the probe of its event loop; one that an attack ended is started again for the other attacks."""

    def __init__(self, server):
        self.server = server
        self.starts = 0
        self.start()

    def start(self):
        self.server.start()
        self.probe = LoopProbe(self.server.port)
        self.starts += 1

    def stop(self):
        self.probe.close()
        self.server.stop()

    def withstand(self, attack):
        """Makes an attack and checks all bounds, those of time in the best of some attempts."""
        if not self.server.alive:
            self.stop()
            self.start()
        for _ in range(ATTEMPTS):
            outcome = measure(self.server, self.probe, attack)
            assert not violations(attack, outcome), outcome.statuses
            late = delays(attack, outcome)
            if not late:
                return
        pytest.fail("; ".join(late))


class Targets:
    """One server at a time; the next one is started where the flags are others."""

    def __init__(self, factory):
        self.factory = factory
        self.flags = self.current = None

    def with_flags(self, flags):
        if self.current is None or flags != self.flags:
            self.stop()
            log = self.factory.mktemp("server") / "log"
            self.flags, self.current = flags, Target(LimitedServer(MEMORY_MB, *flags, log=log))
        return self.current

    def stop(self):
        if self.current is not None:
            self.current.stop()
            self.current = None


@pytest.fixture(scope="session")
def targets(tmp_path_factory):
    targets = Targets(tmp_path_factory)
    yield targets
    targets.stop()


@pytest.fixture(scope="module")
def target(flags, targets):
    target = targets.with_flags(flags)
    starts = target.starts
    yield target
    server = target.server
    state = (server.alive, target.starts, server.over_limit)
    if state != (True, starts, False):
        targets.stop()
        pytest.fail("an attack ended the server")
    assert server.recovery() < 0.2


@pytest.fixture
def withstand(target):
    return target.withstand


@pytest.fixture(scope="session")
def timeouts():
    """Flags that set the timeouts of headers and bodies to a second, by whatever unit their names end in."""
    found = []
    for name in Settings.model_fields:
        if "timeout" in name and ("body" in name or "header" in name):
            found += [f"--{name.replace('_', '-')}", 1000 if name.endswith("_ms") else 1]
    return found
