"""The tasks that bundles can be of, by name."""

from models.operations.operation import AnyOperation
from models.registry import Registry
from models.tasks.model import AnyModel

__all__ = ["TASKS", "listed_operations", "register"]

TASKS: Registry[type[AnyModel]] = Registry("models.tasks", "task")
"""The model class of each task."""

register = TASKS.register
"""Register a model class under the name of its task: `@register("text-embedding")`."""


def listed_operations() -> list[AnyOperation]:
    """Return the operations that the tasks list, of each name and input the first one."""
    found: dict[tuple[str, str], AnyOperation] = {}
    for task in TASKS.values():
        for each in task.operations:
            found.setdefault((each.name, each.input), each)
    return list(found.values())
