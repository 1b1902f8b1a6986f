"""The tasks that bundles can be of, by name."""

from models.registry import Registry
from models.tasks.model import AnyModel

__all__ = ["TASKS", "register"]

TASKS: Registry[type[AnyModel]] = Registry("models.tasks", "task")
"""The model class of each task."""

register = TASKS.register
"""Register a model class under the name of its task: `@register("text-embedding")`."""
