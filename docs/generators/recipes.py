"""The page of recipes, from the pydantic settings of `training`."""

from docs.generators.markdown import page, paragraphs
from docs.generators.sections import Sections
from training.recipe import Recipe
from training.tasks.registry import TASKS

__all__ = ["recipes_page"]

_INTRODUCTION = """
A recipe is a YAML file that describes a run of `softserve-train run`. Unknown fields and values out of range are errors
that name the field. `--set FIELD=VALUE` overrides a field, such as `--set loop.epochs=3`. `training/recipes` has a
commented recipe for each experiment of the project. [Softmax layers](../softmax-layers.md) describes `output_layer`.
"""


def recipes_page() -> str:
    """Return the page: the fields that all recipes have, then those of each task."""
    common = Sections(Recipe)
    shared = frozenset(Recipe.model_fields) - {"task"}
    parts = [_INTRODUCTION, "## All tasks", common.fields(), *common.parts("###")]
    for task in _tasks():
        model = TASKS[task].recipe_type
        sections = Sections(model)
        introduction = f"{paragraphs(model.__doc__)} `task: {task}`, with these fields in addition:"
        parts += [f"## {task}", introduction, sections.fields(shared | {"task"}), *sections.parts("###", shared)]
    return page("Recipes", "training/recipe and training/tasks", parts)


def _tasks() -> list[str]:
    return sorted(name for name in TASKS.names() if TASKS[name].__module__.startswith("training."))
