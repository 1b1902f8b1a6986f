"""Text classification: texts in, probabilities of their classes out. All log-probabilities are base e.

Shapes: `B` texts, `T` tokens, `k` classes asked for.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.backend import Backend
from models.batching import split
from models.bundle.contract import Contract, PositiveInt
from models.bundle.manifest import AnyManifest, BundleManifest
from models.errors import QueryError
from models.operations.classification import ClassifyImageParams, ClassifyParams, ClassifyResult
from models.operations.operation import Operation, Output, TokenForm
from models.tasks.labels import (
    CLASSES_OUTPUTS,
    ClassesConfig,
    Label,
    Ranking,
    classes_cells,
    read_labels,
)
from models.tasks.model import BatchFunction, Model, TopKQuery, checked_top_k
from models.tasks.registry import register
from models.text.config import TextConfig, load_tokenizer
from models.text.limits import TextLimit, ends, several
from models.text.padding import padded
from models.text.tokenization import EncoderTokenizer

__all__ = ["BertNetwork", "Classification", "Classifier", "ClassifierConfig", "ClassifyQuery", "ImportedEncoder"]

_BATCH_TOKENS, _BATCH_COST = 1024, 16
"""Positions of one run on a CPU, padding included: more are no faster, and each takes some 30 kB. Fixed cost of a run,
in tokens; see `models.batching`."""
_DEVICE_BATCH_TOKENS, _DEVICE_BATCH_COST = 16_384, 4096
"""The same on other devices, whose runs have a large fixed cost: 128 texts of 128 tokens are one. Not measured."""


class BertNetwork(Contract):
    """The sizes of a BERT-like text encoder."""

    kind: Literal["bert", "deberta"]
    """Kind of network: vectors of positions (`bert`), or disentangled attention (`deberta`)."""
    hidden_size: PositiveInt
    """Size of the hidden states."""
    inner_size: PositiveInt
    """Width of the feed-forward networks."""
    heads: PositiveInt
    """Attention heads."""
    layers: PositiveInt
    """Transformer layers."""
    pooling: Literal["mean", "cls"]
    """Pooled representation: the mean of the hidden states, or that of `[CLS]`."""
    positions: PositiveInt
    """Tokens that a text may have, the special ones included."""


class ImportedEncoder(Contract):
    """An encoder of another program, as far as its sizes are known."""

    kind: Literal["imported"]
    """Kind of network."""
    architecture: str
    """Name of its class in the program that made it, or the format of its file."""
    hidden_size: PositiveInt | None = None
    """Size of the hidden states."""
    inner_size: PositiveInt | None = None
    """Width of the feed-forward networks."""
    heads: PositiveInt | None = None
    """Attention heads."""
    layers: PositiveInt | None = None
    """Transformer layers."""
    positions: PositiveInt
    """Tokens that a text may have, the special ones included."""


class ClassifierConfig(ClassesConfig, TextConfig):
    """The section of a text classifier."""

    network: Annotated[BertNetwork | ImportedEncoder, Field(discriminator="kind")]
    """The encoder."""

    @model_validator(mode="after")
    def _texts_fit_the_network(self) -> Self:
        if self.limits.max_tokens > self.network.positions:
            raise ValueError(f"limits.max_tokens must be at most network.positions, {self.network.positions}")
        return self


@dataclass(frozen=True, slots=True)
class Classification:
    """A text and its classes, most probable first."""

    text: str
    """The text as it was given."""
    labels: tuple[Label, ...]
    """Fewer than asked for where a sparse-softmax gives fewer a probability; without those of texts of no class."""
    out_of_scope: bool | None
    """Whether the text is likely to be of no class; None for a model that cannot tell."""
    truncated: int | None = None
    """Tokens of the text that `truncate` left out, an estimate for a very long text; None where it was not cut."""


@dataclass(frozen=True, slots=True)
class ClassifyQuery(TopKQuery):
    """A checked and tokenized text."""

    text: str
    tokens: tuple[int, ...]
    """`[CLS]` and `[SEP]` included."""
    top_k: int
    truncated: int | None = None
    """Tokens of the text that were left out."""

    @property
    def length(self) -> int:
        return len(self.tokens)


CLASSIFY = Operation["Classifier", str, ClassifyParams, Classification](
    name="classify",
    summary="Return the most probable classes of each text or image.",
    about="Texts or images to classify.",
    query=lambda model, text, params, _: model.query(text, params.top_k, truncate=params.truncate),
    queries=lambda model, texts, params: model.queries(texts, params.top_k, truncate=params.truncate),
    params=ClassifyParams,
    record=ClassifyResult,
    result_items=lambda model, params: min(params.top_k, len(model.labels)),
    omits_null=True,
    cells=lambda result: (*classes_cells(result), result.text),
    outputs=CLASSES_OUTPUTS,
    classes="probability",
    tokens=TokenForm["Classifier", ClassifyImageParams, Classification](
        query=lambda model, ids, params: model.token_query(ids, params.top_k),
        params=ClassifyImageParams,
        outputs=(
            Output(
                name="log_probabilities",
                kind="number",
                several=True,
                fill=-math.inf,
                values=lambda model, result: [each.log_probability for each in result.labels],
            ),
            Output(
                name="classes",
                kind="integer",
                several=True,
                fill=-1,
                values=lambda model, result: [model.number_of[each.label] for each in result.labels],
            ),
        ),
    ),
    examples=(
        {"text": "book a table for two", "top_k": 3},
        {"text": ["play some music", "what is the weather"], "truncate": True},
    ),
)


@register("text-classification")
class Classifier(Model[ClassifierConfig]):
    """A loaded bundle that classifies texts. Safe to call from several threads.

    `classify` does a whole job; a server makes queries of texts (`query`) and computes them in batches
    (`batch_functions`).
    """

    config_type = ClassifierConfig
    operations = (CLASSIFY,)

    def __init__(
        self,
        manifest: BundleManifest[ClassifierConfig],
        tokenizer: EncoderTokenizer,
        labels: Sequence[str],
        backend: Backend,
    ) -> None:
        super().__init__(manifest, backend)
        self.labels: tuple[str, ...] = tuple(labels)
        self.number_of: Mapping[str, int] = {label: number for number, label in enumerate(self.labels)}
        self._ranking = Ranking.of(labels, self.config)
        self._tokenizer = tokenizer
        self._limit = TextLimit(self.config.limits.max_tokens, added_tokens=2)
        on_cpu = backend.device == "cpu"
        self._largest_run = (_BATCH_TOKENS, _BATCH_COST) if on_cpu else (_DEVICE_BATCH_TOKENS, _DEVICE_BATCH_COST)
        self.longest_input = self._limit.max_tokens

    @property
    def tells_out_of_scope(self) -> bool:
        """Whether there is a rule for inputs of no class."""
        return self._ranking.rule is not None

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        tokenizer = load_tokenizer(EncoderTokenizer, path, manifest.config)
        return cls(manifest, tokenizer, read_labels(path, manifest.config), backend)

    def classify(self, texts: Sequence[str], top_k: int = 5, *, truncate: bool = False) -> list[Classification]:
        """Return the `top_k` most probable classes of each text, all where there are fewer; none of probability 0.

        `truncate` keeps head and tail of a text that is too long. Raises `QueryError` for `top_k` below 1, and for a
        text of white space alone if the model has no rule for texts out of scope, and its `TextTooLongError`.
        """
        return self.run(self.queries(several(texts), top_k, truncate=truncate))

    def query(self, text: str, top_k: int = 5, *, truncate: bool = False) -> ClassifyQuery:
        """Check and tokenize one text; see `classify`."""
        return self.queries([text], top_k, truncate=truncate)[0]

    def queries(self, texts: Sequence[str], top_k: int = 5, *, truncate: bool = False) -> list[ClassifyQuery]:
        """Check and tokenize texts; see `classify`."""
        top_k, keep = checked_top_k(top_k, len(self.labels)), ends if truncate else None
        limit, framed = self._limit, self._tokenizer.framed
        encoded = self._tokenizer.encode_several([limit.characters(text, keep) for text in texts])
        if self._ranking.rule is None and not all(map(str.strip, texts)):
            raise QueryError("the text is empty, and this model has no rule for texts out of scope")
        return [
            ClassifyQuery(text, tuple(framed(limit.tokens(tokens, keep))), top_k, limit.left_out(text, tokens))
            for text, tokens in zip(texts, encoded, strict=True)
        ]

    def token_query(self, ids: Sequence[int], top_k: int = 5) -> ClassifyQuery:
        """Check a text that is given as token ids, `[CLS]` and `[SEP]` included; see `classify`."""
        if not ids:
            raise QueryError("a text has at least one token")
        return ClassifyQuery("", self._limit.ids(ids, self.config.vocab_size), checked_top_k(top_k, len(self.labels)))

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"classify": self.run}

    def warm_up_parts(self, operation: str, count: int, length: int) -> list[ClassifyQuery]:
        tokens = self._tokenizer.framed([self.config.special_tokens.unknown] * max(1, length - 2))
        return [ClassifyQuery("", tuple(tokens[: self._limit.max_tokens]), min(5, len(self.labels)))] * count

    def self_test(self) -> None:
        self.classify(["a"], 1, truncate=True)

    def run(self, queries: Sequence[ClassifyQuery]) -> list[Classification]:
        """Return results in the order of the queries; similar lengths are computed together."""
        order = sorted(range(len(queries)), key=lambda index: -queries[index].length)
        lengths = [queries[index].length for index in order]
        most, fixed = self._largest_run
        ends = split(lengths, fixed=fixed, max_items=most, max_tokens=most)
        found: dict[int, Classification] = {}
        for group in (order[start:end] for start, end in itertools.pairwise([0, *ends])):
            found |= zip(group, self._run([queries[index] for index in group]), strict=True)
        return [found[index] for index in range(len(queries))]

    def _run(self, queries: Sequence[ClassifyQuery]) -> list[Classification]:
        inputs = padded([query.tokens for query in queries])
        top_k = self._ranking.requested(max(query.top_k for query in queries))
        values, classes = self.backend.run("classify", {**inputs, "k": top_k}, ["log_probabilities", "classes"])
        rows = self._ranking.best(values, classes, [query.top_k for query in queries])
        return [self._result(query, row) for query, row in zip(queries, rows, strict=True)]

    def _result(self, query: ClassifyQuery, labels: tuple[Label, ...]) -> Classification:
        outside = self._ranking.out_of_scope(labels)
        if outside is not None:
            outside = outside or not query.text.strip()
        return Classification(query.text, labels, outside, query.truncated)
