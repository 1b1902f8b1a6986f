"""The commands `softserve next-word`, `score`, `translate` and `classify`, which need no server."""

import os
import re
from pathlib import Path
from typing import Annotated

import tyro

from service.offline import operations
from service.offline.operations import Operation
from service.offline.options import FileOptions, ModelOptions, UsageError
from service.offline.running import run_file, run_texts

__all__ = ["classify", "next_word", "score", "translate"]

File = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")]
Texts = Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT...")]
_MODEL, _FILES = ModelOptions(), FileOptions()
_Model = Annotated[ModelOptions, tyro.conf.OmitArgPrefixes]
_Files = Annotated[FileOptions, tyro.conf.OmitArgPrefixes]


def _run(
    operation: Operation, file: Path | None, texts: tuple[str, ...], model: ModelOptions, files: FileOptions
) -> int:
    if not texts:
        return run_file(operation, None if file == Path("-") else file, model, files)
    if file is not None or files.output is not None:
        raise UsageError("give texts on the command line, or files")
    return run_texts(operation, [_argument(text) for text in texts], model, files.format)


def _argument(text: str) -> str:
    """Return an argument as UTF-8 where the locale's encoding could not decode it."""
    try:
        return os.fsencode(text).decode() if re.search("[\udc80-\udcff]", text) else text
    except UnicodeDecodeError:
        return text


def next_word(
    context: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[CONTEXT...]")] = (),
    file: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    top_k: int = 5,
    model: _Model = _MODEL,
    files: _Files = _FILES,
) -> int:
    """Print the most probable next words of texts.

    softserve next-word "we had a very"

    Args:
        context: The beginning of a sentence, or several.
        file: A file with a text on each line instead; - is standard input.
        top_k: Words to print.
    """
    if not context and file is None:
        raise UsageError('give a text: softserve next-word "we had a very", or --file')
    return _run(operations.next_word(top_k, truncate=files.truncate), file, context, model, files)


def score(file: File = None, text: Texts = (), model: _Model = _MODEL, files: _Files = _FILES) -> int:
    """Score the sentences of a file: log-probability (base e) and perplexity of each.

    softserve score sentences.txt; softserve score --text "books can be outdated" "he goed home"

    Args:
        file: A file with a sentence on each line, by default standard input.
        text: Sentences instead of a file.
    """
    return _run(operations.score(truncate=files.truncate), file, text, model, files)


def translate(
    file: File = None,
    text: Texts = (),
    beam_size: int = 5,
    target_language: str | None = None,
    model: _Model = _MODEL,
    files: _Files = _FILES,
) -> int:
    """Translate the lines of a file.

    softserve translate german.txt --output english.txt; softserve translate --text "Guten Morgen!"

    Args:
        file: A file with a text on each line, by default standard input.
        text: Texts instead of a file.
        beam_size: Hypotheses that are searched; 1 is greedy search, which is faster.
        target_language: One of the model's target languages, by default its first.
    """
    operation = operations.translate(beam_size, target_language, truncate=files.truncate)
    return _run(operation, file, text, model, files)


def classify(
    file: File = None, text: Texts = (), top_k: int = 5, model: _Model = _MODEL, files: _Files = _FILES
) -> int:
    """Classify the texts of a file.

    softserve classify mails.jsonl --field body --output classes.jsonl; softserve classify --text "play some music"

    Args:
        file: A file with a text on each line, by default standard input.
        text: Texts instead of a file.
        top_k: Classes in the JSON of a text; a table and tab-separated values have the best one.
    """
    return _run(operations.classify(top_k, truncate=files.truncate), file, text, model, files)
