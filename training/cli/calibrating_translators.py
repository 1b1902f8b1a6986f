"""`softserve-train calibrate` of translation models: the confidence in a bundle's translations is fitted again."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.tasks.translation import Translator
from models.tasks.translation_confidence import Confidence
from training.data.entities import TextPair
from training.data.own_files import read_pairs
from training.recipe.loading import parse_recipe
from training.tasks.translation.confidence import fitted_confidence
from training.tasks.translation.export import confidence_paragraph
from training.tasks.translation.reading import validation_domains
from training.tasks.translation.settings import TranslationRecipe

__all__ = ["changed_paragraph", "confidence_of"]

_PARAGRAPH = re.compile(r"Answers have a `confidence`, .*")


def confidence_of(
    model: Translator, data_dir: Path, texts: Path | None = None, corpora: Sequence[str] = ()
) -> Confidence:
    """Return the confidence fitted on the validation splits of the bundle's recipe, or on the pairs of a file.

    `corpora` are further ones whose validation splits count, those of `export.confidence_on` by default. Raises
    `ValueError` for an imported bundle without `texts`, for too few poor or acceptable translations, and the errors of
    reading the pairs.
    """
    found = fitted_confidence(model, _domains(model, data_dir, texts, corpora))
    if found is None:
        raise ValueError("the confidence needs at least 20 poor translations (chrF below 30) and 20 others")
    return found


def _domains(
    model: Translator, data_dir: Path, texts: Path | None, corpora: Sequence[str]
) -> Mapping[str, Sequence[TextPair]]:
    if texts is not None:
        return {texts.name: read_pairs(texts)}
    if not model.manifest.provenance.recipe:
        raise ValueError("the bundle was imported: give pairs by --texts")
    recipe = parse_recipe(model.manifest.provenance.recipe)
    assert isinstance(recipe, TranslationRecipe)
    return validation_domains(recipe.data, data_dir, corpora or recipe.export.confidence_on)


def changed_paragraph(card: str, manifest: Any) -> str:
    """Return a model card with the confidence of a changed manifest."""
    paragraph = confidence_paragraph(manifest.config.confidence)
    if _PARAGRAPH.search(card):
        return _PARAGRAPH.sub(lambda _: paragraph, card, count=1)
    return card.replace("\n## Limits\n", f"\n{paragraph}\n\n## Limits\n", 1)
