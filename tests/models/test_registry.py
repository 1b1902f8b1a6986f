"""Tests of open registries."""

from importlib.metadata import EntryPoint

import pytest

from models import registry as module
from models.registry import Registry, UnknownNameError


@pytest.fixture
def empty() -> Registry[object]:
    """A registry whose package registers nothing in it."""
    return Registry("models.text", "thing")


def test_values_are_registered_by_a_decorator(empty):
    assert empty.register("list")(list) is list
    assert empty["list"] is list
    assert empty.names() == ["list"]
    assert empty.values() == [list]


def test_a_name_is_registered_once(empty):
    empty.register("list")(list)
    empty.register("list")(list)
    with pytest.raises(ValueError, match="thing 'list' is registered twice"):
        empty.register("list")(dict)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(empty):
    empty.register("list")(list)
    with pytest.raises(UnknownNameError, match=r"unknown thing 'set'; known: list; .* softserve\.models\.text"):
        empty["set"]


def test_installed_packages_add_values(empty, monkeypatch):
    entry = EntryPoint("counter", "collections:Counter", "softserve.models.text")
    asked = []
    monkeypatch.setattr(module, "entry_points", lambda group: asked.append(group) or [entry])
    assert empty["counter"].__name__ == "Counter"
    assert asked == ["softserve.models.text"]


def test_the_tasks_of_the_package_are_found():
    from models.tasks.registry import TASKS

    assert {"language-model", "translation", "text-generation"} <= set(TASKS.names())


def test_the_group_of_entry_points_is_that_of_the_package_or_a_given_one():
    assert Registry("models.tasks", "task").group == "softserve.models.tasks"
    assert Registry("models.tasks", "task", group="other").group == "other"
