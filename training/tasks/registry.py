"""Which class trains which recipe."""

from training.recipe import Recipe
from training.tasks.language_model import LanguageModelTask
from training.tasks.translation import TranslationTask

__all__ = ["AnyTask", "task_class"]

AnyTask = LanguageModelTask | TranslationTask

_TASKS: dict[str, type[LanguageModelTask] | type[TranslationTask]] = {
    "language-model": LanguageModelTask,
    "translation": TranslationTask,
}


def task_class(recipe: Recipe) -> type[LanguageModelTask] | type[TranslationTask]:
    return _TASKS[recipe.task]
