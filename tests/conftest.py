"""What holds for all tests; their fixtures are in `tests/fixtures`."""

import gc
import logging

import pytest
from hypothesis import HealthCheck, settings

_FIXTURES = ("words", "classification", "generation", "images")

settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures where tests run, and not in the process that hands them out to others."""
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        return
    for name in _FIXTURES:
        config.pluginmanager.import_plugin(f"tests.fixtures.{name}")
    import torch

    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    # pytest listens to every logger; torch's trace log would slow exports down and fill the report of a failed test.
    logging.getLogger("torch.__trace").disabled = True


def pytest_collection_finish() -> None:
    """Let collections of garbage leave out all that was imported; each export asks for several."""
    gc.collect()
    gc.freeze()
