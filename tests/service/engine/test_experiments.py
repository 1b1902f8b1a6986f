"""Shadows and canaries: what a candidate is compared on, what it answers, and what it never delays."""

import asyncio
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from models import UnknownModelError
from models.operations.comparison import compare_classes
from models.operations.operation import Operation, Params, Record
from service.engine.caller import Account, Caller
from service.engine.client import Engine, Job
from service.engine.dynamic_batching import DynamicBatcher
from service.engine.experiments import ExperimentError, Plan, UnknownExperimentError
from service.engine.queue import Limits
from service.engine.resources import Resources
from service.engine.served_model import ServedModel
from service.engine.served_models import ServedModels
from service.observability.metrics import Metrics
from service.settings import Settings

LIMITS = Limits(
    max_batch_items=32,
    max_batch_tokens=4096,
    batch_cost=0.0,
    max_delay=0.0,
    starvation_limit=1.0,
    max_wait=float("inf"),
    max_queue_items=1000,
    max_queue_tokens=10_000,
)


@dataclass
class Label:
    label: str
    probability: float


@dataclass
class Labels:
    text: str
    labels: list[Label]


class LabelRecord(Record):
    label: str
    probability: float


class LabelsRecord(Record):
    labels: list[LabelRecord]


@dataclass
class Query:
    text: str
    length: int = 1
    result_items: int = 1

    def parts(self):
        return [self]


def _query(model, text, params, most):
    if model.refuses:
        raise ValueError("the candidate fails")
    return Query(text)


CLASSIFY = Operation(
    name="classify",
    summary="Classify.",
    about="Texts.",
    query=_query,
    params=Params,
    record=LabelsRecord,
    compare=compare_classes,
)


class Classifier:
    """Labels the texts "0", "1", ... even or odd; one of `wrong` gets the other label."""

    reads, refuses = "text", False

    def __init__(self, name, version, wrong=()):
        self.manifest = SimpleNamespace(name=name, version=version, task="text-classification")
        self.offers, self.wrong = ("classify",), set(wrong)
        self.batch_functions = {"classify": self.compute}
        self.computed, self.gate = [], threading.Event()
        self.gate.set()

    def compute(self, queries):
        assert self.gate.wait(10)
        self.computed.extend(each.text for each in queries)
        return [(int(each.text) + (int(each.text) in self.wrong)) % 2 for each in queries]

    def estimated_tokens(self, function, inputs):
        return len(inputs)

    def result(self, query, outputs):
        return Labels(query.text, [Label(("even", "odd")[outputs[0]], 0.9)])

    def with_cache_salt(self, tenant):
        return self


class Loader:
    """Loads the classifiers of a table."""

    def __init__(self, metrics, classifiers):
        self.metrics, self.models = (
            metrics,
            {f"{each.manifest.name}:{each.manifest.version}": each for each in classifiers},
        )
        self.first = [Path("models") / each.manifest.name / str(each.manifest.version) for each in classifiers[:1]]
        self.signatures, self.loads = {}, []
        self.store = SimpleNamespace(path=self.path, problems=dict, paths=list)

    def configured(self):
        return self.first

    def path(self, name):
        full = name if ":" in name else max(each for each in self.models if each.startswith(f"{name}:"))
        if full not in self.models:
            raise UnknownModelError(name, self.models)
        return Path("models", *full.split(":"))

    async def run(self, function, *arguments):
        return function(*arguments)

    async def load(self, path, *, trial=False, background=False):
        self.loads.append((path.name, background))
        model = self.models[f"{path.parent.name}:{path.name}"]
        observer = self.metrics.for_model(model.manifest, [SimpleNamespace(device="cpu", name="onnx")])
        batcher = DynamicBatcher([model.batch_functions], LIMITS, observer)
        batcher.start()
        return ServedModel(model, batcher, observer, "digest")

    def close(self):
        pass


def run(scenario, *classifiers):
    """Run a scenario with an engine whose service serves the first of some classifiers, and could load the others."""

    async def main():
        settings, metrics = Settings(), Metrics()
        resources = Resources(settings)
        models = ServedModels(settings, metrics, resources, Loader(metrics, classifiers))
        engine = Engine(settings, metrics, models, resources)
        await models.load()
        try:
            await asyncio.wait_for(scenario(engine), 60)
        finally:
            await engine.experiments.stop()
            await models.stop()
            resources.close()

    asyncio.run(main())


async def ask(engine, texts, model="parity", **caller):
    """Return the version that answered, and its labels."""
    account = Account()
    job = Job(operation=CLASSIFY, inputs=texts, params=Params(), caller=Caller(account, **caller), model=model)
    outcome = await engine.run(job)
    labels = [each.labels[0].label for each in outcome.results]
    account.close()
    return outcome.served.key[1], labels


async def compared(experiment, count):
    while sum(experiment.counts.values()) < count:
        await asyncio.sleep(0.005)


def plan(**changes):
    return Plan(**{"name": "try", "primary": "parity", "candidate": "parity:2", **changes})


def test_a_shadow_compares_every_answer_and_changes_none():
    candidate = Classifier("parity", 2, wrong=[3])

    async def scenario(engine):
        experiment = await engine.experiments.start(plan(keep_disagreements=10))
        assert await ask(engine, ["2", "3", "4"]) == (1, ["even", "odd", "even"])
        await compared(experiment, 3)
        assert experiment.counts == {"agree": 2, "disagree": 1}
        (kept,) = experiment.disagreements
        assert (kept["input"], kept["primary"]["labels"][0]["label"], kept["candidate"]["labels"][0]["label"]) == (
            "3",
            "odd",
            "even",
        )
        assert candidate.computed == ["2", "3", "4"]
        text = engine.metrics.text().decode()
        assert 'softserve_experiment_inputs_total{experiment="try",outcome="disagree"} 1.0' in text
        await engine.experiments.drop("try")
        assert 'experiment="try"' not in engine.metrics.text().decode()

    run(scenario, Classifier("parity", 1), candidate)


def test_texts_are_kept_only_where_that_is_asked_for():
    async def scenario(engine):
        experiment = await engine.experiments.start(plan())
        await ask(engine, ["3"])
        await compared(experiment, 1)
        assert experiment.summary()["disagreements"] == []
        await engine.experiments.drop("try")
        experiment = await engine.experiments.start(plan(keep_disagreements=2))
        await ask(engine, ["3", "5", "7"])
        await compared(experiment, 3)
        assert [each["input"] for each in experiment.disagreements] == ["5", "7"]

    run(scenario, Classifier("parity", 1), Classifier("parity", 2, wrong=[3, 5, 7]))


def test_a_loss_of_three_points_is_found():
    """The candidate is wrong on 30 of 1,000 texts: less than 98.5 % agree, with a confidence of 95 %."""
    texts = [str(number) for number in range(1000)]

    async def agreement(engine, candidate):
        experiment = await engine.experiments.start(plan(candidate=candidate))
        for start in range(0, 1000, 50):
            await ask(engine, texts[start : start + 50])
            await compared(experiment, start + 50)
        await engine.experiments.drop("try")
        assert experiment.counts["shed"] == 0
        return experiment.summary()["agreement"]

    async def scenario(engine):
        worse = await agreement(engine, "parity:2")
        assert (worse["value"], worse["total"]) == (0.97, 1000)
        assert worse["low"] == pytest.approx(0.9574, abs=1e-4)
        assert worse["high"] == pytest.approx(0.9789, abs=1e-4)
        equal = await agreement(engine, "parity:3")
        assert equal["value"] == 1.0
        assert equal["low"] > worse["high"]

    wrong = range(0, 990, 33)
    run(scenario, Classifier("parity", 1), Classifier("parity", 2, wrong), Classifier("parity", 3))


def test_the_primary_is_answered_while_the_candidate_computes():
    candidate = Classifier("parity", 2)

    async def scenario(engine):
        experiment = await engine.experiments.start(plan())
        candidate.gate.clear()
        for _ in range(5):
            assert await ask(engine, ["1"]) == (1, ["odd"])
        assert sum(experiment.counts.values()) == 0
        candidate.gate.set()
        await compared(experiment, 5)
        assert experiment.counts == {"agree": 5}

    run(scenario, Classifier("parity", 1), candidate)


def test_under_load_the_shadow_is_shed_and_nothing_else():
    primary, candidate = Classifier("parity", 1), Classifier("parity", 2)

    async def scenario(engine):
        experiment = await engine.experiments.start(plan())
        primary.gate.clear()
        blocked = asyncio.create_task(ask(engine, ["0"]))  # from now on the primary always computes
        while engine.served_models.served["parity", 1].batcher.idle:
            await asyncio.sleep(0.001)
        observed = SimpleNamespace(operation=CLASSIFY, inputs=["1"] * 50, params=Params(), items=50, seconds=0.0)
        results = [Labels("1", [Label("odd", 0.9)])] * 50
        for _ in range(8):
            served = engine.served_models.served["parity", 1]
            list(engine.experiments.observed(served, results, observed, Caller(Account())))
        await compared(experiment, 150)
        assert experiment.counts == {"shed": 150}  # 250 of the 400 wait
        assert candidate.computed == []
        primary.gate.set()
        assert await blocked == (1, ["even"])
        await compared(experiment, 401)
        assert experiment.counts == {"shed": 150, "agree": 251}

    run(scenario, primary, candidate)


def test_large_answers_are_shed():
    async def scenario(engine):
        experiment = await engine.experiments.start(plan())
        served = engine.served_models.served["parity", 1]
        observed = SimpleNamespace(operation=CLASSIFY, inputs=["1"], params=Params(), items=1001, seconds=0.0)
        assert engine.experiments.observed(served, (), observed, Caller(Account())) == ()
        assert experiment.counts == {"shed": 1}

    run(scenario, Classifier("parity", 1), Classifier("parity", 2))


def test_a_candidate_that_fails_is_counted_and_the_next_request_compared():
    candidate = Classifier("parity", 2)

    async def scenario(engine):
        experiment = await engine.experiments.start(plan())
        candidate.refuses = True
        assert await ask(engine, ["1", "2"]) == (1, ["odd", "even"])
        await compared(experiment, 2)
        candidate.refuses = False
        await ask(engine, ["1"])
        await compared(experiment, 3)
        assert experiment.counts == {"failed": 2, "agree": 1}

    run(scenario, Classifier("parity", 1), candidate)


def test_a_newer_version_answers_its_name_only_once_it_is_promoted():
    async def scenario(engine):
        await engine.experiments.start(plan())
        assert (await ask(engine, ["1"]))[0] == 1
        assert (await ask(engine, ["1"], model=None))[0] == 1
        assert (await ask(engine, ["1"], model="parity:2"))[0] == 2
        await engine.experiments.promote("try")
        assert (await ask(engine, ["1"]))[0] == 2
        assert (await ask(engine, ["1"], model="parity:1"))[0] == 1
        assert not engine.experiments

    run(scenario, Classifier("parity", 1), Classifier("parity", 2))


def test_dropping_unloads_the_candidate_that_was_loaded_for_the_experiment():
    async def scenario(engine):
        await engine.experiments.start(plan())
        await engine.experiments.drop("try")
        assert list(engine.served_models.served) == [("parity", 1)]
        await engine.served_models.add("parity:2")
        await engine.experiments.start(plan(primary="parity:1"))
        assert (await ask(engine, ["1"]))[0] == 2
        await engine.experiments.drop("try")
        assert sorted(engine.served_models.served) == [("parity", 1), ("parity", 2)]

    run(scenario, Classifier("parity", 1), Classifier("parity", 2))


def test_a_shadow_has_the_lowest_priority_until_it_is_promoted():
    async def scenario(engine):
        loads = engine.served_models.loader.loads
        await engine.experiments.start(plan())
        assert loads[1:] == [("2", True)]
        await engine.experiments.promote("try")
        assert loads[2:] == [("2", False)]
        await engine.experiments.start(plan(mode="canary", candidate="parity:3"))
        assert loads[3:] == [("3", False)]
        await engine.experiments.promote("try")
        assert loads[4:] == []

    run(scenario, Classifier("parity", 1), Classifier("parity", 2), Classifier("parity", 3))


def test_another_model_can_be_promoted_and_requests_without_a_name_find_the_primary():
    async def scenario(engine):
        await engine.experiments.start(plan(candidate="other:7"))
        assert (await ask(engine, ["1"], model=None))[0] == 1
        await engine.experiments.promote("try")
        assert (await ask(engine, ["1"]))[0] == 7
        assert (await ask(engine, ["1"], model=None))[0] == 7

    run(scenario, Classifier("parity", 1), Classifier("other", 7))


def test_a_canary_answers_its_share():
    async def scenario(engine):
        experiment = await engine.experiments.start(plan(mode="canary", share=0.3))
        versions = [(await ask(engine, ["1"]))[0] for _ in range(200)]
        assert 20 < versions.count(2) < 100  # 60 are expected; far beyond six standard deviations
        assert experiment.requests == {"primary": versions.count(1), "candidate": versions.count(2)}
        assert (await ask(engine, ["1"], model="parity:1"))[0] == 1
        assert [(await ask(engine, ["1"], side=side))[0] for side in ("primary", "candidate")] == [1, 2]

    run(scenario, Classifier("parity", 1), Classifier("parity", 2))


def test_a_canary_by_keys_answers_each_key_by_one_side():
    async def scenario(engine):
        await engine.experiments.start(plan(mode="canary", share=0.5, by="key"))
        sides = {key: {(await ask(engine, ["1"], tenant=key))[0] for _ in range(3)} for key in map(str, range(40))}
        assert all(len(each) == 1 for each in sides.values())
        assert {1, 2} == set().union(*sides.values())

    run(scenario, Classifier("parity", 1), Classifier("parity", 2))


def test_a_canary_without_its_candidate_is_answered_by_the_primary():
    async def scenario(engine):
        await engine.experiments.start(plan(mode="canary"))
        await engine.served_models.remove("parity:2")
        assert (await ask(engine, ["1"]))[0] == 1
        with pytest.raises(UnknownModelError):
            await engine.experiments.promote("try")

    run(scenario, Classifier("parity", 1), Classifier("parity", 2))


def test_experiments_that_make_no_sense_are_refused_and_leave_nothing():
    other = Classifier("other", 1)
    other.offers = ("translate",)

    async def scenario(engine):
        start = engine.experiments.start
        with pytest.raises(ExperimentError, match="the primary itself"):
            await start(plan(candidate="parity:1"))
        with pytest.raises(ExperimentError, match="offers no operation"):
            await start(plan(candidate="other:1"))
        with pytest.raises(UnknownModelError):
            await start(plan(candidate="parity:9"))
        with pytest.raises(UnknownExperimentError, match="no experiment 'try'"):
            engine.experiments.get("try")
        await start(plan())
        with pytest.raises(ExperimentError, match="of that name"):
            await start(plan())
        with pytest.raises(ExperimentError, match="primary of another"):
            await start(plan(name="again"))

    run(scenario, Classifier("parity", 1), Classifier("parity", 2), other)
