"""What holds for all tests; their fixtures are in `tests/fixtures`."""

import gc
import logging
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_TESTS = Path(__file__).parent
_LONGEST = (
    "service/web/test_playground.py",
    "service/web/test_failures.py",
    "service/test_multiprocess.py",
    "extension/test_package.py",
    "docs/test_tutorials.py",
    "docs/test_tutorials_own.py",
    "training/tasks/translation/test_task.py",
    "training/test_distributed.py",
    "service/api/test_admin.py",
    "service/test_server.py",
    "training/tasks/text_generation/test_export.py",
    "training/test_loop.py",
    "extension/test_kernels.py",
    "training/tasks/translation/test_export.py",
    "service/bench/test_run.py",
    "service/test_timed_protocol.py",
    "models/tasks/test_bundled_translator.py",
    "training/export/test_layers.py",
    "training/test_cli.py",
    "service/api/v1/test_translation.py",
    "benchmarks/peers/test_environments.py",
    "benchmarks/test_memory_sweep.py",
    "service/bench/test_load.py",
    "docs/test_bundled.py",
    "service/test_http_protocol.py",
    "containers/test_proxies.py",
    "containers/test_helm.py",
)
"""Files of 10 seconds and more; those that mostly wait are among those that compute."""
_FIXTURES = ("words", "classification", "generation", "images", "marian")

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process runs one alone in the end."""
    first = {str(_TESTS / file): place for place, file in enumerate(_LONGEST)}
    items.sort(key=lambda item: first.get(str(item.path), len(first)))


def pytest_collection_finish() -> None:
    """Let collections of garbage leave out all that was imported; each export asks for several."""
    gc.collect()
    gc.freeze()
