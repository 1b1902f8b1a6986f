"""Tests of what models of all tasks have in common."""

from types import SimpleNamespace

import pytest

from models.bundle.contract import TaskConfig
from models.operations.language import NEXT_WORD, NextWordParams
from models.tasks.model import Model, SinglePart
from models.tasks.registry import TASKS


def test_a_query_of_one_part_is_its_part():
    query = SinglePart()
    assert query.parts() == (query,)


@pytest.mark.parametrize("name", ["next-word", "next-word:4", "de-en", "intents"])
def test_warm_up_parts_have_the_lengths_asked_for(store, name):
    model = store.load(name, threads=1)
    for operation in model.batch_functions or model.offers:
        for length in model.warm_up_lengths:
            queries = model.warm_up_parts(operation, 3, length)
            assert len(queries) == 3
            expected = 1 if operation == "step" else length
            assert all(abs(query.length - expected) <= 2 for query in queries)
            if model.batch_functions:
                assert len(model.batch_functions[operation](queries)) == 3


def test_former_names_of_what_a_task_defines_are_accepted_with_a_warning():
    with pytest.warns(DeprecationWarning, match=" now$") as warned:

        class Former(Model[TaskConfig]):
            config_type = TaskConfig

            @classmethod
            def from_bundle(cls, path, manifest, backend):
                return cls(manifest, backend)

            @property
            def operations(self):
                return {"ask": list}

            def warm_up_queries(self, operation, count, length):
                return [operation] * count

    assert [str(each.message) for each in warned] == [
        "Former.operations is batch_functions now",
        "Former.warm_up_queries is warm_up_parts now",
    ]
    model = Former.from_bundle(None, SimpleNamespace(config=None), None)
    assert model.warm_up_parts("ask", 2, 1) == ["ask", "ask"]
    assert model.compute("ask", (1, 2)) == [1, 2]


def test_tokens_are_estimated_from_characters(store):
    model = store.load("intents", threads=1)
    assert model.estimated_tokens("classify", ["a" * 40, "b" * 8]) == 12


def test_a_model_without_a_cache_ignores_it(store):
    store.load("intents", threads=1).use_cache(1 << 20)


@pytest.mark.parametrize("name", ["next-word", "next-word:4", "de-en", "intents"])
def test_the_self_test_goes_from_texts_to_results_by_every_graph(store, name, monkeypatch):
    model = store.load(name, threads=1)
    ran = set()
    for method in ("run", "resident"):
        call = getattr(type(model.backend), method)

        def record(backend, graph, *arguments, call=call):
            ran.add(graph)
            return call(backend, graph, *arguments)

        monkeypatch.setattr(type(model.backend), method, record)
    model.self_test()
    assert ran == set(model.manifest.graphs)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("next-word", {"vocabulary", "sets of next words", "sets of next tokens"}),
        ("next-word:4", {"vocabulary"}),
        ("de-en", {"languages", "vocabulary", "sets of translations"}),
        ("intents", {"vocabulary", "classes", "calibration", "prediction sets"}),
    ],
)
def test_the_section_describes_itself(store, name, lines):
    assert set(store.manifest(name).config.description()) == lines


@pytest.mark.parametrize("name", TASKS.names())
def test_every_task_has_a_model_class_with_a_section_and_operations(name):
    model_type = TASKS[name]
    assert issubclass(model_type, Model)
    assert issubclass(model_type.config_type, TaskConfig)
    assert model_type.offers
    assert model_type.warm_up_lengths


@pytest.mark.parametrize(
    ("name", "unit", "function"),
    [
        ("next-word", None, "next-word"),
        ("next-word", "token", "next-token"),
        ("next-word:4", None, "next-word"),
        ("next-word:4", "token", "next-word"),  # which refuses it
    ],
)
def test_searches_for_words_and_distributions_of_tokens_have_costs_of_their_own(store, name, unit, function):
    model = store.load(name, threads=1)
    assert NEXT_WORD.function_of(model, NextWordParams(unit=unit)) == function
    assert all(part.words for part in store.load("next-word", threads=1).warm_up_parts("next-word", 2, 8))
