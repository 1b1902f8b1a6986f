"""Tests of the registry of tasks."""

import pytest

from models.bundle.contract import TaskConfig
from models.tasks.model import Model
from models.tasks.registry import TASKS


@pytest.mark.parametrize("name", TASKS.names())
def test_every_task_has_a_model_class_with_a_section_and_operations(name):
    model_type = TASKS[name]
    assert issubclass(model_type, Model)
    assert issubclass(model_type.config_type, TaskConfig)
    assert model_type.offers
    assert model_type.warm_up_lengths
