"""Text embedding: texts in, vectors out, close for texts of similar meaning.

Shapes: `B` texts, `T` tokens, `d` dimensions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from models.backend import Array, Backend
from models.bundle.contract import PositiveInt
from models.bundle.manifest import AnyManifest, BundleManifest
from models.errors import QueryError
from models.operations.comparison import compare_vectors
from models.operations.encoding import EmbedParams, EmbedResult, Precision
from models.operations.operation import ArrayForm, Operation, Output, TokenForm, always
from models.operations.windows import Aggregation, in_windows
from models.tasks.model import BatchFunction, Model, SinglePart, Values
from models.tasks.registry import register
from models.tasks.text_encoder import EncoderConfig
from models.tasks.vector_precision import checked_row, in_precision
from models.tasks.windowed import WindowsQuery, aggregated, check_windows, results_of
from models.text.config import load_tokenizer
from models.text.encoding import EncodedText, EncoderTexts, computed_by_length, encoder_inputs
from models.text.limits import head, several
from models.text.tokenization import EncoderTokenizer

__all__ = ["EMBED", "EmbedQuery", "Embedder", "EmbedderConfig", "Embedding"]

_DIMENSIONS_OF_ITEM = 16
"""Dimensions of a vector that take the memory of one result item."""


class EmbedderConfig(EncoderConfig):
    """The section of a model of text embeddings."""

    required_graphs = frozenset({"embed"})
    has_output_layer = False
    dimensions: PositiveInt
    """Size of a vector."""
    normalized: bool
    """Whether vectors have length 1 unless a request says otherwise; the graph does not normalize them."""
    pooling: str
    """How hidden states become a vector, in words."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Texts that are put before each text, by name."""
    default_prompt: str | None = None
    """Name of the prompt of requests that name none."""

    @model_validator(mode="after")
    def _default_prompt_is_known(self) -> Self:
        if self.default_prompt is not None and self.default_prompt not in self.prompts:
            raise ValueError(f"default_prompt {self.default_prompt!r} is not among prompts")
        return self

    def summary(self) -> Mapping[str, object]:
        return {
            **super().summary(),
            "dimensions": self.dimensions,
            "normalized": self.normalized,
            "prompts": self.prompts,
            "default_prompt": self.default_prompt,
        }

    def description(self) -> Mapping[str, str]:
        unit = ", of length 1" if self.normalized else ""
        found = {**super().description(), "vectors": f"{self.dimensions} dimensions{unit}, {self.pooling}"}
        if self.prompts:
            default = "" if self.default_prompt is None else f"; default {self.default_prompt!r}"
            found["prompts"] = f"{', '.join(f'{name!r}' for name in self.prompts)}{default}"
        return found


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of a text."""

    text: str
    """The text as it was given."""
    vector: Array
    """Its vector, `[d]`; with bits for dimensions `[d / 8]`."""
    truncated: int | None = None
    """Tokens of the text that `truncate` left out; None where it was not cut."""
    tokens: int = 0
    """Tokens that were read, of all windows."""
    windows: int | None = None
    """Windows that the text was read in; None without windows."""

    def values(self) -> list[float] | list[int]:
        """Return the elements of the vector, rounded to 8 decimals: float32 has no more of a unit vector."""
        integers = self.vector.dtype.kind != "f"
        found: list[float] = (self.vector if integers else np.round(self.vector.astype(np.float64), 8)).tolist()
        return found


@dataclass(frozen=True, slots=True)
class EmbedQuery(SinglePart):
    """A checked and tokenized text."""

    text: str
    encoded: EncodedText
    dimensions: int
    normalized: bool
    precision: Precision = "float32"

    @property
    def length(self) -> int:
        return len(self.encoded.tokens)

    @property
    def result_items(self) -> int:
        """Memory of the result, as of so many words or labels."""
        return math.ceil(self.dimensions / _DIMENSIONS_OF_ITEM)


_OUTPUT = Output["Embedder", Embedding](
    name="embedding", kind="number", several=True, values=lambda model, result: result.vector.astype(float).tolist()
)

EMBED = Operation["Embedder", str, EmbedParams, Embedding](
    name="embed",
    summary="Return the vector of each text.",
    about="Texts to embed.",
    query=lambda model, text, params, _: model.queries_of([text], **params.model_dump())[0],
    queries=lambda model, texts, params: model.queries_of(texts, **params.model_dump()),
    params=EmbedParams,
    repeatable=always,
    record=EmbedResult,
    compare=compare_vectors,
    recorded=lambda result, params: EmbedResult(
        embedding=result.values(), truncated=result.truncated, windows=result.windows
    ),
    result_items=lambda model, params: math.ceil(
        min(model.config.dimensions, params.dimensions or model.config.dimensions) / _DIMENSIONS_OF_ITEM
    ),
    counts_parts=in_windows,
    omits_null=True,
    cells=lambda result: (" ".join(map(str, result.values())),),
    array=ArrayForm(
        field="embedding",
        form=lambda model, params: model.vector_form(params.dimensions, params.normalize, params.precision),
        values=lambda result: result.vector,
    ),
    outputs=(_OUTPUT,),
    tokens=TokenForm["Embedder", EmbedParams, Embedding](
        query=lambda model, ids, params: model.token_query(
            ids, params.dimensions, params.normalize, params.precision, windows=params.windows
        ),
        params=EmbedParams,
        outputs=(_OUTPUT,),
    ),
    examples=({"text": ["how do I reset my password?", "I forgot the code of my account"]},),
)


@register("text-embedding")
class Embedder(Model[EmbedderConfig]):
    """A loaded bundle that embeds texts. Safe to call from several threads.

    `embed` does a whole job; a server makes queries of texts (`queries`) and computes them in batches
    (`batch_functions`).
    """

    config_type = EmbedderConfig
    operations = (EMBED,)

    def __init__(self, manifest: BundleManifest[EmbedderConfig], tokenizer: EncoderTokenizer, backend: Backend) -> None:
        super().__init__(manifest, backend)
        limits = self.config.limits
        self._texts = EncoderTexts(tokenizer, limits.max_tokens, self.config.vocab_size, None)
        self.longest_input = limits.max_tokens

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        return cls(manifest, load_tokenizer(EncoderTokenizer, path, manifest.config), backend)

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        precision: Precision = "float32",
        windows: Aggregation | None = None,
        overlap: int | None = None,
        truncate: bool = False,
    ) -> Array:
        """Return the vectors of texts, `[B, d]`, with bits for dimensions `[B, d / 8]`.

        `prompt` is the name of a prompt that is put before each text, an empty one stands for none. `dimensions` keeps
        the first ones. `normalize` says whether vectors have length 1, if not as the bundle has it. `precision` is
        the type of numbers, see `models.tasks.vector_precision`. `windows` reads a text that is too long in windows
        that share `overlap` tokens, by default an eighth, each with the prompt, and returns the mean or the maximum of
        their vectors, of length 1 where theirs have it. `truncate` keeps the first tokens of a text that is too long.
        Raises `QueryError` for an unknown prompt, more dimensions than the model has and parameters that do not fit
        each other, and its `TextTooLongError`.
        """
        queries = self.queries_of(
            several(texts),
            prompt=prompt,
            dimensions=dimensions,
            normalize=normalize,
            precision=precision,
            windows=windows,
            overlap=overlap,
            truncate=truncate,
        )
        size, dtype = self.vector_form(dimensions, normalize, precision)
        found = [each.vector for each in results_of(self, queries)]
        return np.stack(found) if found else np.zeros((0, size), dtype)

    def queries(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        precision: Precision = "float32",
        truncate: bool = False,
    ) -> list[EmbedQuery]:
        """Check and tokenize texts; see `embed`."""
        before, chosen = self._prompt(prompt), self._chosen(dimensions, normalize, precision)
        encoded = self._texts.single([before + text for text in texts], truncate=truncate, keep=head)
        return [EmbedQuery(text, each, *chosen) for text, each in zip(texts, encoded, strict=True)]

    def window_queries(
        self,
        texts: Sequence[str],
        windows: Aggregation,
        overlap: int | None = None,
        *,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        precision: Precision = "float32",
    ) -> list[WindowsQuery[EmbedQuery]]:
        """Check and tokenize texts that are read in windows; see `embed`."""
        before, chosen = self._prompt(prompt), self._chosen(dimensions, normalize, precision)
        return [
            WindowsQuery(text, tuple(EmbedQuery(text, each, *chosen) for each in some), windows)
            for text, some in zip(texts, self._texts.windowed(texts, overlap, prompt=before), strict=True)
        ]

    def queries_of(
        self,
        texts: Sequence[str],
        *,
        windows: Aggregation | None = None,
        overlap: int | None = None,
        truncate: bool = False,
        **chosen: Any,
    ) -> Sequence[EmbedQuery | WindowsQuery[EmbedQuery]]:
        """Check and tokenize texts, in windows where these are chosen; see `embed`."""
        check_windows(windows, overlap, truncate=truncate)
        if windows is None:
            return self.queries(texts, truncate=truncate, **chosen)
        return self.window_queries(texts, windows, overlap, **chosen)

    def token_query(
        self,
        ids: Sequence[int],
        dimensions: int | None = None,
        normalize: bool | None = None,
        precision: Precision = "float32",
        *,
        windows: Aggregation | None = None,
    ) -> EmbedQuery:
        """Check a text that is given as token ids, special tokens and prompt included; see `embed`."""
        if windows is not None:
            raise QueryError("windows are for texts, not for token ids")
        return EmbedQuery("", self._texts.given(ids), *self._chosen(dimensions, normalize, precision))

    def vector_form(
        self, dimensions: int | None = None, normalize: bool | None = None, precision: Precision = "float32"
    ) -> tuple[int, np.dtype[Any]]:
        """Return the size and the type of vectors; see `embed`."""
        size, normalized, precision = self._chosen(dimensions, normalize, precision)
        return checked_row(size, precision, normalized=normalized)

    def _prompt(self, name: str | None) -> str:
        config = self.config
        wanted = config.default_prompt if name is None else name
        if not wanted and wanted not in config.prompts:
            return ""
        if wanted not in config.prompts:
            known = ", ".join(map(repr, config.prompts)) or "none"
            raise QueryError(f"the model has no prompt {wanted!r}; its prompts: {known}")
        return config.prompts[wanted]

    def _chosen(
        self, dimensions: int | None, normalize: bool | None, precision: Precision
    ) -> tuple[int, bool, Precision]:
        most = self.config.dimensions
        if dimensions is not None and not 1 <= dimensions <= most:
            raise QueryError(f"dimensions must be from 1 to {most}, not {dimensions}")
        size, normalized = dimensions or most, self.config.normalized if normalize is None else normalize
        checked_row(size, precision, normalized=normalized)
        return size, normalized, precision

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"embed": self.run}

    def warm_up_parts(self, operation: str, count: int, length: int) -> list[EmbedQuery]:
        return [EmbedQuery("", self._texts.sample(length), *self._chosen(None, None, "float32"))] * count

    def self_test(self) -> None:
        self.embed(["a"], truncate=True)

    def run(self, queries: Sequence[EmbedQuery]) -> list[Embedding]:
        """Return results in float32, in the order of the queries; similar lengths are computed together."""
        on_cpu = self.backend.device == "cpu"
        return computed_by_length(queries, lambda query: query.length, self._run, on_cpu=on_cpu)

    def _run(self, queries: Sequence[EmbedQuery]) -> list[Embedding]:
        (vectors,) = self.backend.run("embed", encoder_inputs([each.encoded for each in queries], None), ["vectors"])
        return [
            Embedding(
                query.text,
                _vector(row[: query.dimensions], query.normalized),
                query.encoded.truncated,
                len(query.encoded.tokens),
            )
            for query, row in zip(queries, vectors, strict=True)
        ]

    def result(self, query: EmbedQuery | WindowsQuery[EmbedQuery], outputs: Values) -> Embedding:
        """Return the one output, or those of windows together, in the precision of the query."""
        found: Embedding = outputs[0]
        precision = query.windows[0].precision if isinstance(query, WindowsQuery) else query.precision
        if isinstance(query, WindowsQuery):
            found = _together(query, outputs)
        return found if precision == "float32" else replace(found, vector=in_precision(found.vector, precision))


def _together(query: WindowsQuery[EmbedQuery], outputs: Sequence[Embedding]) -> Embedding:
    """Return the vector of a text from those of its windows."""
    vector = outputs[0].vector
    if len(outputs) > 1:
        mean = aggregated([each.vector for each in outputs], query.aggregation).astype(np.float32)
        vector = _vector(mean, query.windows[0].normalized)
    tokens = sum(each.tokens for each in outputs)
    return Embedding(query.text, vector, tokens=tokens, windows=len(outputs))


def _vector(row: Array, normalized: bool) -> Array:
    """Return the elements kept `[d]`, of length 1 where `normalized`; a vector of zeros stays as it is."""
    if not normalized:
        return row.copy()  # not the whole batch
    length = float(np.linalg.norm(row.astype(np.float64)))
    return row / np.float32(length) if length > 0 else row.copy()
