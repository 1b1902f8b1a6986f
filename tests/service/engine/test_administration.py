"""Calls of administrators, and the changes that a process which starts later takes over."""

import asyncio
import pickle

import pytest

from models import UnknownModelError
from service.engine.administration import (
    DropExperiment,
    Load,
    OneProcess,
    PromoteExperiment,
    ReadChanges,
    ReadExperiments,
    StartExperiment,
    Unload,
    take_over,
)
from service.engine.experiments import Plan, Record, UnknownExperimentError
from tests.service.engine.test_experiments import Classifier, ask, compared, plan, run


def versions():
    return [Classifier("parity", number) for number in (1, 2, 3)]


def both(scenario, changed):
    """Run a scenario with a process that calls have changed, and with another one that has taken over."""

    async def start(first):
        async def go_on(second):
            changes = pickle.loads(pickle.dumps(await ReadChanges().make(first)))
            await take_over(changes, second)
            await scenario(first, second)

        await changed(first)
        await asyncio.to_thread(run, go_on, *versions())

    run(start, *versions())


def call(engine, *calls):
    return asyncio.gather(*(OneProcess(engine).call(each) for each in calls))


def test_a_process_takes_over_loaded_and_unloaded_models():
    async def changed(engine):
        await call(engine, Load("parity:2"))
        await call(engine, Unload("parity:1"))

    async def scenario(first, second):
        assert first.served_models.served.keys() == second.served_models.served.keys() == {("parity", 2)}
        assert await ask(second, ["1"]) == (2, ["odd"])

    both(scenario, changed)


def test_a_process_takes_over_a_shadow_and_what_is_promoted_later():
    async def changed(engine):
        await call(engine, StartExperiment(plan()))
        assert (await ask(engine, ["1"]))[0] == 1
        await compared(engine.experiments.get("try"), 1)

    async def scenario(first, second):
        assert second.served_models.loader.loads == [("1", False), ("2", True)]
        assert (await ask(second, ["2"]))[0] == 1, "although the candidate is newer"
        await compared(second.experiments.get("try"), 1)
        ((mine,),) = await call(second, ReadExperiments("try"))
        assert mine[0].counts == {"agree": 1}, "of the process itself"
        await call(second, PromoteExperiment("try"))
        assert (await ask(second, ["1"]))[0] == 2
        assert second.served_models.loader.loads[2:] == [("2", False)]

    both(scenario, changed)


def test_a_process_takes_over_a_canary_that_is_dropped_later():
    async def changed(engine):
        await call(engine, StartExperiment(plan(mode="canary", candidate="parity:3")))

    async def scenario(first, second):
        assert (await ask(second, ["1"]))[0] == 3
        await call(second, DropExperiment("try"))
        assert (await ask(second, ["1"]))[0] == 1
        assert second.served_models.served.keys() == {("parity", 1)}

    both(scenario, changed)


def test_a_process_takes_over_what_was_promoted():
    async def changed(engine):
        await call(engine, Load("parity:3"))
        await call(engine, StartExperiment(plan(primary="parity:3", candidate="parity:2")))
        await call(engine, PromoteExperiment("try"))

    async def scenario(first, second):
        assert (await ask(first, ["1"]))[0] == (await ask(second, ["1"]))[0] == 2
        assert not second.experiments

    both(scenario, changed)


def test_other_processes_get_the_versions_that_the_first_one_has_found():
    async def scenario(engine):
        ((loaded,),) = await call(engine, Load("parity"))
        assert Load("parity").resolved(loaded) == Load("parity:3")
        asked = StartExperiment(Plan(name="try", primary="parity:1", candidate="parity"))
        ((record,),) = await call(engine, asked)
        assert asked.resolved(record).plan == Plan(name="try", primary="parity:1", candidate="parity:3")
        assert DropExperiment("try").resolved(record) == DropExperiment("try")

    run(scenario, *versions())


def test_a_call_that_fails_raises_its_error():
    async def scenario(engine):
        for wrong in (Load("parity:9"), Unload("nothing"), StartExperiment(plan(candidate="parity:9"))):
            with pytest.raises(UnknownModelError):
                await call(engine, wrong)
        for unknown in (DropExperiment("try"), PromoteExperiment("try"), ReadExperiments("try")):
            with pytest.raises(UnknownExperimentError):
                await call(engine, unknown)

    run(scenario, *versions())


def test_records_of_several_processes_are_added_up():
    first = Record(plan=plan(keep_disagreements=3), primary=("parity", 1), candidate=("parity", 2), started=20.0)
    second = Record(plan=first.plan, primary=first.primary, candidate=first.candidate, started=10.0)
    first.counts["agree"], first.counts["shed"], second.counts["agree"] = 3, 1, 4
    first.requests["primary"], second.requests["candidate"] = 5, 6
    first.disagreements.extend({"input": text} for text in "ab")
    second.disagreements.extend({"input": text} for text in "cd")
    both = Record.together([first, second])
    assert (both.counts, both.requests) == ({"agree": 7, "shed": 1}, {"primary": 5, "candidate": 6})
    assert [each["input"] for each in both.disagreements] == ["b", "c", "d"]
    assert both.started == 10.0
    assert first.counts == {"agree": 3, "shed": 1}
