"""The tasks that can be trained, by name."""

from typing import Any

from models.registry import Registry
from training.tasks.task import Task

__all__ = ["TASKS", "register"]

TASKS: Registry[type[Task[Any]]] = Registry("training.tasks", "task")
"""The class of each task; other packages add theirs by the entry-point group `softserve.training.tasks`."""

register = TASKS.register
"""Register a class under the name of its task: `@register("text-embedding")`."""
