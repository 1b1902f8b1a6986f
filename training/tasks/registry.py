"""Which class trains which recipe, and what a run directory keeps for it beside the weights."""

from pathlib import Path

import torch

from models.text.tokenization import EncoderTokenizer, SubwordTokenizer, WordTokenizer
from training.checkpoint import RunDirectory
from training.networks.text_encoder import EncoderConfig
from training.recipe import AnyRecipe, ClassificationRecipe, GenerationRecipe, LanguageModelRecipe, TranslationRecipe
from training.tasks.image_classification import ImageClassificationTask
from training.tasks.language_model import LanguageModelTask
from training.tasks.text_classification import Classes, TextClassificationTask
from training.tasks.text_generation import TextGenerationTask
from training.tasks.translation import TranslationTask

__all__ = ["AnyTask", "metric_of", "open_task", "start_run"]

AnyTask = LanguageModelTask | TranslationTask | TextGenerationTask | TextClassificationTask | ImageClassificationTask


def start_run(recipe: AnyRecipe, run: RunDirectory, data_dir: Path) -> None:
    """Makes a run directory: the recipe, and the vocabulary of its training split; labels and an encoder's sizes.

    What was there before is gone, but only once the new vocabulary is known.
    """
    texts: dict[Path, str] = {}
    tokenizer: WordTokenizer | SubwordTokenizer | EncoderTokenizer | None = None
    if isinstance(recipe, LanguageModelRecipe):
        tokenizer = LanguageModelTask.build_tokenizer(recipe, data_dir)
    elif isinstance(recipe, TranslationRecipe):
        tokenizer = TranslationTask.build_tokenizer(recipe, data_dir)
    elif isinstance(recipe, GenerationRecipe):
        tokenizer, encoder = TextGenerationTask.build_encoder(recipe, data_dir)
        texts[run.encoder] = encoder.model_dump_json(indent=2)
    elif isinstance(recipe, ClassificationRecipe):
        classes = TextClassificationTask.build_classes(recipe, data_dir)
        tokenizer = classes.tokenizer
        texts[run.labels] = "".join(f"{label}\n" for label in classes.labels)
        texts[run.encoder] = classes.encoder.model_dump_json(indent=2)
    else:
        labels = ImageClassificationTask.build_labels(recipe, data_dir)
        texts[run.labels] = "".join(f"{label}\n" for label in labels)
    run.clear()
    run.start(recipe)
    if tokenizer is not None:
        tokenizer.save(run.tokenizer)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def open_task(recipe: AnyRecipe, run: RunDirectory, data_dir: Path, device: torch.device) -> AnyTask:
    """The task of a recipe with fresh parameters, and what its run directory keeps."""
    if isinstance(recipe, LanguageModelRecipe):
        return LanguageModelTask(recipe, WordTokenizer.from_file(run.tokenizer), data_dir, device)
    if isinstance(recipe, TranslationRecipe):
        return TranslationTask(recipe, SubwordTokenizer.from_file(run.tokenizer), data_dir, device)
    if isinstance(recipe, GenerationRecipe):
        tokenizer = EncoderTokenizer.from_file(run.tokenizer)
        return TextGenerationTask(recipe, tokenizer, _encoder(run), data_dir, device)
    labels = tuple(run.labels.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    if not isinstance(recipe, ClassificationRecipe):
        return ImageClassificationTask(recipe, labels, data_dir, device)
    classes = Classes(
        tokenizer=EncoderTokenizer.from_file(run.tokenizer),
        labels=labels,
        encoder=_encoder(run),
    )
    return TextClassificationTask(recipe, classes, data_dir, device)


def _encoder(run: RunDirectory) -> EncoderConfig:
    return EncoderConfig.model_validate_json(run.encoder.read_bytes())


def metric_of(recipe: AnyRecipe) -> tuple[str, bool]:
    """Name of the metric that models of a recipe are selected by, and whether a larger one is better."""
    if isinstance(recipe, LanguageModelRecipe):
        return LanguageModelTask.metric, LanguageModelTask.maximize
    if isinstance(recipe, TranslationRecipe):
        return TranslationTask.metric, TranslationTask.maximize
    if isinstance(recipe, GenerationRecipe):
        return TextGenerationTask.metric, TextGenerationTask.maximize
    several = isinstance(recipe, ClassificationRecipe) and recipe.data.multi_label
    return "micro F1" if several else "accuracy", True
