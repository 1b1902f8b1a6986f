"""`softserve serve` with the bundled models, for the official clients of other services."""

import time

import pytest

from tests.service.process import Process

collect_ignore = ["packages"]  # `make test-clients`

KEY = "key-of-the-tests-0123456789"


def served(log, *arguments):
    """Serve until the tests end; yields the address."""
    process = Process(log, *arguments)
    try:
        while not process.ready():
            time.sleep(0.05)
        yield process.address
    finally:
        process.end()


def _jobs(directory):
    return "--database", f"sqlite:///{directory / 'jobs.db'}"


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """A server that needs no key."""
    yield from served(tmp_path_factory.mktemp("open") / "log.txt")


@pytest.fixture(scope="session")
def closed(tmp_path_factory):
    """A server that needs `KEY`."""
    directory = tmp_path_factory.mktemp("closed")
    (directory / "keys.txt").write_text(KEY)
    yield from served(directory / "log.txt", "--api-keys", directory / "keys.txt", *_jobs(directory))


@pytest.fixture(scope="session")
def pivot(tmp_path_factory, pivot_models):
    """A server that needs no key, with two models that lead from German to French through English."""
    directory = tmp_path_factory.mktemp("pivot-server")
    models = ("--model-dirs", pivot_models, "--default-target-language", "fr")
    yield from served(directory / "log.txt", *models, *_jobs(directory))
