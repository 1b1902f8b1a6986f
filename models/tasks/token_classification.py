"""Token classification: texts in, labelled parts of them out, such as names of persons and places.

Shapes: `B` texts, `T` tokens, `C` labels. All log-probabilities are base e.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field

from models.backend import Array, Backend
from models.bundle.contract import Contract, FileName
from models.bundle.manifest import AnyManifest, BundleManifest
from models.errors import BundleError, QueryError
from models.operations.comparison import compare_entities
from models.operations.operation import Operation, Output, Table, always
from models.operations.tagging import Aggregation, TagParams, TagResult
from models.tasks.labels import read_label_file
from models.tasks.model import BatchFunction, Model, SinglePart
from models.tasks.registry import register
from models.tasks.text_encoder import EncoderConfig
from models.tasks.token_aggregation import Entity, aggregated, continuations, merged
from models.text.config import load_tokenizer
from models.text.encoding import EncodedText, computed_by_length, encoder_inputs
from models.text.limits import TextLimit, head, several
from models.text.tokenization import EncoderTokenizer
from models.text.windows import Windowing
from models.text.words import Span

__all__ = ["MOST_LABELS", "TAG", "TagQuery", "Tagger", "TaggerConfig", "Tagging", "TokenLabels", "Window"]

MOST_LABELS = 10_000
"""Labels that a model may have: a run of the graph returns the log-probability of each one for each token."""


class TokenLabels(Contract):
    """The labels of tokens."""

    file: FileName
    """A label a line, in the order of their numbers."""
    count: Annotated[int, Field(ge=2, le=MOST_LABELS)]
    """Number of lines."""


class TaggerConfig(EncoderConfig):
    """The section of a model of token classification."""

    required_graphs = frozenset({"tag"})
    labels: TokenLabels
    """The labels of tokens."""

    def files(self) -> frozenset[str]:
        return super().files() | {self.labels.file}

    def summary(self) -> Mapping[str, object]:
        return {**super().summary(), "labels": self.labels.count}

    def description(self) -> Mapping[str, str]:
        return {**super().description(), "labels": f"{self.labels.count} of tokens"}


@dataclass(frozen=True, slots=True)
class Tagging:
    """A text and its entities."""

    text: str
    """The text as it was given."""
    entities: tuple[Entity, ...]
    """The entities in their order in the text."""
    truncated: int | None = None
    """Tokens of the text that `truncate` left out, an estimate for a very long text; None where it was not cut."""


@dataclass(frozen=True, slots=True)
class Window(SinglePart):
    """A text, or as much of it as the model reads at once."""

    text: str
    """The whole text."""
    encoded: EncodedText
    spans: tuple[Span, ...]
    """The characters of each token of the text, without `[CLS]` and `[SEP]`."""
    continues: tuple[bool, ...]
    """Whether each of them continues the word of the one before it."""
    aggregation: Aggregation = "simple"
    ignored: frozenset[str] = frozenset()

    @property
    def length(self) -> int:
        return len(self.encoded.tokens)

    @property
    def result_items(self) -> int:
        """Largest number of entities."""
        return len(self.spans)


@dataclass(frozen=True, slots=True)
class TagQuery:
    """A checked and tokenized text."""

    text: str
    windows: tuple[Window, ...]
    """None of a text without tokens."""
    min_score: float = 0.0
    truncated: int | None = None

    @property
    def result_items(self) -> int:
        """Largest number of entities of the windows."""
        return sum(window.result_items for window in self.windows)

    def parts(self) -> tuple[Window, ...]:
        """Return the windows."""
        return self.windows


def _cells(found: Tagging) -> tuple[object, ...]:
    """Return the cells of a table: the entities with their labels, and the text."""
    return ", ".join(f"{each.text} ({each.label})" for each in found.entities), found.text


TAG = Operation["Tagger", str, TagParams, Tagging](
    name="tag",
    summary="Return the entities of each text, such as names, with their labels and places.",
    about="Texts whose entities are found.",
    query=lambda model, text, params, most: model.queries([text], **params.model_dump(), max_windows=most)[0],
    params=TagParams,
    repeatable=always,
    record=TagResult,
    compare=compare_entities,
    omits_null=True,
    cells=_cells,
    table=Table(
        columns=("label", "start", "end", "text", "score"),
        rows=lambda found: [(each.label, each.start, each.end, each.text, each.score) for each in found.entities],
    ),
    outputs=(
        Output(
            name="label", kind="text", several=True, values=lambda _, found: [each.label for each in found.entities]
        ),
        Output(
            name="start", kind="integer", several=True, values=lambda _, found: [each.start for each in found.entities]
        ),
        Output(name="end", kind="integer", several=True, values=lambda _, found: [each.end for each in found.entities]),
        Output(
            name="entity", kind="text", several=True, values=lambda _, found: [each.text for each in found.entities]
        ),
        Output(
            name="score", kind="number", several=True, values=lambda _, found: [each.score for each in found.entities]
        ),
    ),
    examples=(
        {"text": "Marie Curie was born in Warsaw."},
        {"text": ["She lived in Paris", "he works for the city"], "aggregation": "first"},
    ),
)


@register("token-classification")
class Tagger(Model[TaggerConfig]):
    """A loaded bundle that labels the tokens of texts. Safe to call from several threads.

    `tag` does a whole job; a server makes queries of texts (`queries`) and computes them in batches
    (`batch_functions`).
    """

    config_type = TaggerConfig
    operations = (TAG,)

    def __init__(
        self,
        manifest: BundleManifest[TaggerConfig],
        tokenizer: EncoderTokenizer,
        labels: Sequence[str],
        backend: Backend,
    ) -> None:
        super().__init__(manifest, backend)
        self.labels: tuple[str, ...] = tuple(labels)
        self.tokenizer = tokenizer
        self._limit = TextLimit(self.config.limits.max_tokens, added_tokens=2)
        self.longest_input = self.config.limits.max_tokens

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        tokenizer = load_tokenizer(EncoderTokenizer, path, manifest.config)
        labels: TokenLabels = manifest.config.labels
        shapes = {each.name: tuple(each.shape) for each in manifest.graphs["tag"].outputs}
        if shapes.get("log_probabilities", ())[2:] != (labels.count,):
            problem = f"the graph tag does not give log_probabilities of {labels.count} labels for each token"
            raise BundleError(str(path), [problem])
        return cls(manifest, tokenizer, read_label_file(path, labels.file, labels.count), backend)

    def tag(
        self,
        texts: Sequence[str],
        aggregation: Aggregation = "simple",
        *,
        ignore_labels: Sequence[str] = ("O",),
        min_score: float = 0.0,
        overlap: int | None = None,
        truncate: bool = False,
    ) -> list[Tagging]:
        """Return the entities of each text, as `TokenClassificationPipeline` of transformers does.

        `truncate` keeps the first tokens of a text that is too long. With `overlap` such a text is read in windows
        that share so many tokens. Raises `QueryError` for an overlap that is too large, or with the aggregation `none`
        or `truncate`, and its `TextTooLongError`.
        """
        queries = self.queries(
            several(texts),
            aggregation,
            ignore_labels=ignore_labels,
            min_score=min_score,
            overlap=overlap,
            truncate=truncate,
        )
        outputs = iter(self.run([window for query in queries for window in query.windows]))
        return [self.result(query, [next(outputs) for _ in query.windows]) for query in queries]

    def queries(
        self,
        texts: Sequence[str],
        aggregation: Aggregation = "simple",
        *,
        ignore_labels: Sequence[str] = ("O",),
        min_score: float = 0.0,
        overlap: int | None = None,
        truncate: bool = False,
        max_windows: int | None = None,
    ) -> list[TagQuery]:
        """Check and tokenize texts, with an overlap in at most `max_windows` windows each; see `tag`."""
        limit, windowing, keep = self._limit, Windowing.of(self._limit, 0), head if truncate else None
        if overlap is not None:
            windowing = self._windowing(overlap, aggregation, truncate=truncate)
            limit = windowing.limit_of(limit, max_windows)
        ignored = frozenset(ignore_labels)
        encoded = self.tokenizer.encode_with_spans([limit.characters(text, keep) for text in texts])
        found = []
        for text, (ids, spans) in zip(texts, encoded, strict=True):
            kept = limit.tokens(ids, keep)
            windows = self._windows(text, kept, spans[: len(kept)], windowing)
            windows = [replace(window, aggregation=aggregation, ignored=ignored) for window in windows]
            found.append(TagQuery(text, tuple(windows), min_score, limit.left_out(text, ids)))
        return found

    def _windows(self, text: str, ids: list[int], spans: Sequence[Span], windowing: Windowing) -> list[Window]:
        """Return a text in windows; none of a text without tokens."""
        windows = []
        continues = self._continues(text, ids, spans)
        for some in windowing.slices(len(ids)) if ids else ():
            tokens = tuple(self.tokenizer.framed(ids[some]))
            windows.append(Window(text, EncodedText(tokens, len(tokens)), tuple(spans[some]), continues[some]))
        return windows

    def _windowing(self, overlap: int, aggregation: Aggregation, *, truncate: bool) -> Windowing:
        """Return how texts are read in windows with an overlap; raises `QueryError` for other parameters that do not
        fit."""
        found = Windowing.of(self._limit, overlap)
        if aggregation == "none":
            raise QueryError("an overlap needs an aggregation: tokens of two windows would be returned twice")
        if truncate:
            raise QueryError("give either overlap or truncate: with an overlap, texts are read to their end")
        return found

    def _continues(self, text: str, ids: Sequence[int], spans: Sequence[Span]) -> tuple[bool, ...]:
        """Return whether each token continues the word of the one before it."""
        tokenizer = self.tokenizer
        pieces = list(map(tokenizer.word, ids)) if tokenizer.marks_continuations else None
        return continuations(text, spans, pieces, [token == tokenizer.unknown_id for token in ids])

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"tag": self.run}

    def warm_up_parts(self, operation: str, count: int, length: int) -> list[Window]:
        inner = max(1, min(length, self.config.limits.max_tokens) - 2)
        tokens = tuple(self.tokenizer.framed([self.tokenizer.unknown_id] * inner))
        spans = tuple((place, place + 1) for place in range(inner))
        return [Window("a" * inner, EncodedText(tokens, len(tokens)), spans, (False,) * inner)] * count

    def self_test(self) -> None:
        self.tag(["a"], truncate=True)

    def run(self, windows: Sequence[Window]) -> list[tuple[Entity, ...]]:
        """Return the entities of windows, in their order; similar lengths are computed together."""
        on_cpu = self.backend.device == "cpu"
        return computed_by_length(windows, lambda window: window.length, self._run, on_cpu=on_cpu)

    def _run(self, windows: Sequence[Window]) -> list[tuple[Entity, ...]]:
        found = []
        for window, scores in zip(windows, self._computed([window.encoded for window in windows]), strict=True):
            probabilities = np.exp(scores[1 : len(window.spans) + 1])
            entities = aggregated(
                window.text, window.spans, window.continues, probabilities, self.labels, window.aggregation
            )
            found.append(tuple(each for each in entities if each.label not in window.ignored))
        return found

    def log_probabilities(self, texts: Sequence[EncodedText]) -> list[Array]:
        """Return the log-probabilities `[T, C]` of the tokens of texts, those that the tokenizer adds included."""
        on_cpu = self.backend.device == "cpu"
        return computed_by_length(texts, lambda text: len(text.tokens), self._computed, on_cpu=on_cpu)

    def _computed(self, texts: Sequence[EncodedText]) -> list[Array]:
        (values,) = self.backend.run("tag", encoder_inputs(texts, None), ["log_probabilities"])
        return [row[: len(text.tokens)] for row, text in zip(values, texts, strict=True)]

    def result(self, query: TagQuery, outputs: Sequence[Sequence[Entity]]) -> Tagging:
        """Return the entities of a text from those of its windows."""
        entities = tuple(each for each in merged(outputs) if each.score >= query.min_score)
        return Tagging(query.text, entities, query.truncated)
