"""Token classification: a tag for each word of a sentence, such as those of named entities."""

from training.tasks.token_classification.export import TokenClassificationExport
from training.tasks.token_classification.task import TokenClassificationTask

__all__ = ["TokenClassificationTask"]

TokenClassificationTask.exporter = TokenClassificationExport
