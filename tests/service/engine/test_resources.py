"""The budget of memory, and the table of it in the documentation."""

import math
import re
from pathlib import Path

import pytest

from service.engine.resources import GRPC_CALLS, Resources
from service.settings import Settings

ROOT = Path(__file__).parents[3]
MODELS = 330
"""Megabytes of the bundled models, as docs/serving.md states them."""
COPIES_OF_BODY = 4
"""A body as bytes, as texts, as tokens, and as the texts of its answer."""
ITEM_BYTES = 400
"""A result item as an object and as JSON, measured on `/v1/next-word`."""
SMALL_RESULTS = 5 / 4
"""Small requests have a quarter of the result items beyond the budget."""
PREPARATION = 2 * 30 + 160
"""Megabytes of two texts that are tokenized and an image of 16 megapixels that is decoded, measured."""
BATCHES = 150
"""Megabytes of the arena of onnxruntime, measured with the bundled models."""


@pytest.fixture
def bounds():
    """Upper bounds of the memory of all requests of a process with the default settings, in megabytes, where 1 GB is
    available."""
    settings = Settings()
    resources = Resources(settings)
    yield {
        "request bodies": COPIES_OF_BODY * resources.bodies.total / 2**20,
        "texts and images that are prepared": PREPARATION,
        "batches": BATCHES,
        "decoding caches": settings.decoding_cache_bytes(2**30) / 2**20,
        "results and answers": SMALL_RESULTS * resources.results.total * ITEM_BYTES / 2**20,
        "prefix cache of a language model": settings.prefix_cache_bytes(200 << 20, 2**30) / 2**20,
    }
    resources.close()


def test_decoding_caches_take_a_share_of_the_memory_where_nothing_else_is_stated():
    assert Settings().decoding_cache_bytes(16 << 30) == 2 << 30
    assert Settings().decoding_cache_bytes(math.inf) == Settings().decoding_cache_bytes() == 128 << 20
    assert Settings(decoding_cache_mb=3).decoding_cache_bytes(16 << 30) == 3 << 20
    assert Settings(gpu_memory_mb=1000, device="cuda").decoding_cache_bytes(16 << 30) == 128 << 20


@pytest.mark.parametrize(
    ("longest", "available", "megabytes"),
    [
        (0, 64 << 30, 64),
        (1 << 20, 64 << 30, 64),  # eight texts fit
        (75 << 20, 64 << 30, 600),
        (75 << 20, 4 << 30, 256),
        (75 << 20, 0.5 * 2**30, 64),
        (75 << 20, math.inf, 64),
    ],
)
def test_a_prefix_cache_holds_several_of_the_longest_texts_where_there_is_memory(longest, available, megabytes):
    assert Settings().prefix_cache_bytes(longest, available) == megabytes << 20
    assert Settings(prefix_cache_mb=3).prefix_cache_bytes(longest, available) == 3 << 20
    assert Settings(prefix_cache_mb=0).prefix_cache_bytes(longest, available) == 0


def documented():
    """Rows of the table Memory in docs/serving.md, in megabytes."""
    section = (ROOT / "docs/serving.md").read_text().split("## Memory", 1)[1].split("\n## ", 1)[0]
    return {name: int(size) for name, size in re.findall(r"^\| ([^|]+?) \| (\d+) \|", section, re.MULTILINE)}


def test_the_documentation_states_the_bounds_of_the_default_settings(bounds):
    rounded = {name: round(size) for name, size in bounds.items()}
    assert documented() == {**rounded, "together": sum(rounded.values())}


def test_the_documentation_states_the_bound_of_calls_over_grpc():
    megabytes = GRPC_CALLS * Settings().max_body_bytes / 2**20
    assert f"`--grpc-port` adds {megabytes:g} MB: {GRPC_CALLS} calls" in (ROOT / "docs/serving.md").read_text()


def test_the_default_settings_and_the_bundled_models_fit_into_the_default_container(bounds):
    compose = (ROOT / "compose.yaml").read_text()
    assert 'memory: "${MEMORY:-1g}"' in compose
    assert MODELS + sum(bounds.values()) < 1024


def test_budgets_are_those_of_the_settings():
    resources = Resources(Settings(max_body_bytes=10, decoding_cache_mb=2, max_result_items=640))
    assert (resources.bodies.total, resources.decoding_cache.total, resources.results.total) == (160, 2 << 20, 640)
    assert (resources.results.of(640).total, resources.results.of(10).total) == (640, 160)
    resources.close()
