"""Tests of the progress bar."""

import asyncio
import io

import pytest
from rich.console import Console

from benchmarks.load.generator import LoadTest
from benchmarks.load.model_list import ListedModel
from benchmarks.load.options import LoadOptions
from benchmarks.load.progress import progress_bar
from benchmarks.load.workload import Workload


async def drawn(terminal, warm_up):
    """Return the output of half a second of a load test with 3 responses, 2 refusals and a failure."""
    options = LoadOptions(seconds=60, warm_up=warm_up)
    served = ListedModel(name="stub", version=1, task="any", operations=["classify"], reads="text", limits={})
    test = LoadTest(None, Workload(served, options), options)  # it is not run
    test.outcome.requests, test.outcome.answered, test.outcome.refused = 6, [0.1] * 3, [0.1] * 2
    output = io.StringIO()
    with progress_bar(test, options, Console(file=output, force_terminal=terminal, width=120)):
        await asyncio.sleep(0.5)
    return output.getvalue()


@pytest.mark.parametrize(("warm_up", "what"), [(60, "warming up"), (0, "measuring")])
def test_a_terminal_shows_how_far_it_is(warm_up, what, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = asyncio.run(drawn(True, warm_up))
    assert what in text
    assert "3 answered, 2 refused, 1 failed" in text


def test_there_is_no_bar_where_there_is_no_terminal():
    assert asyncio.run(drawn(False, 0)) == ""
