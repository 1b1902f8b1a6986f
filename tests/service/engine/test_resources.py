"""The budget of memory, and the table of it in the documentation."""

import re
from pathlib import Path

from service.engine.resources import Resources, memory_bounds
from service.settings import Settings

ROOT = Path(__file__).parents[3]
MODELS = 260
"""Megabytes of the bundled models, as docs/serving.md states them."""


def documented():
    """Rows of the table Memory in docs/serving.md, in megabytes."""
    section = (ROOT / "docs/serving.md").read_text().split("## Memory", 1)[1].split("\n## ", 1)[0]
    return {name: int(size) for name, size in re.findall(r"^\| ([^|]+?) \| (\d+) \|", section, re.MULTILINE)}


def test_the_documentation_states_the_bounds_of_the_default_settings():
    bounds = {name: round(size / 2**20) for name, size in memory_bounds(Settings()).items()}
    assert documented() == {**bounds, "together": sum(bounds.values())}


def test_the_default_settings_and_the_bundled_models_fit_into_the_default_container():
    compose = (ROOT / "compose.yaml").read_text()
    assert 'memory: "${MEMORY:-1g}"' in compose
    assert MODELS + sum(memory_bounds(Settings()).values()) / 2**20 < 1024


def test_the_settings_bound_what_they_say():
    assert memory_bounds(Settings(grpc_port=1))["messages over gRPC"] == 128 << 20
    changed = memory_bounds(
        Settings(max_body_bytes=2 << 20, decoding_cache_mb=7, max_result_items=1000, prefix_cache_mb=3)
    )
    assert (changed["request bodies"], changed["decoding caches"]) == (128 << 20, 7 << 20)
    assert (changed["results and answers"], changed["prefix cache of a language model"]) == (500_000, 3 << 20)


def test_budgets_are_those_of_the_settings():
    resources = Resources(Settings(max_body_bytes=10, decoding_cache_mb=2, max_result_items=640))
    assert (resources.bodies.total, resources.decoding_cache.total, resources.results.total) == (160, 2 << 20, 640)
    assert (resources.results.of(640).total, resources.results.of(10).total) == (640, 160)
    resources.close()
