"""Tests of the progress bar."""

import asyncio
import io

import pytest
from rich.console import Console

from service.bench.load import LoadTest
from service.bench.options import Load
from service.bench.progress import progress_of
from service.bench.served import Served
from service.bench.workload import Workload


async def drawn(terminal, warm_up):
    """What is printed in half a second of a run that has 3 answers, 2 refusals and a failure."""
    options = Load(seconds=60, warm_up=warm_up)
    served = Served(name="stub", version=1, task="text-classification", limits={})
    test = LoadTest(None, Workload(served, options), options)  # it is not run
    test.outcome.requests, test.outcome.answered, test.outcome.refused = 6, [0.1] * 3, [0.1] * 2
    output = io.StringIO()
    async with progress_of(test, options, Console(file=output, force_terminal=terminal, width=120)):
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
