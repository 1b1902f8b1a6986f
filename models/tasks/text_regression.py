"""Regression of texts and pairs of texts: a number for each. Rerankers (cross-encoders) are such models.

Shapes: `B` texts, `T` tokens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from models.backend import Backend
from models.bundle.manifest import AnyManifest, BundleManifest
from models.errors import QueryError
from models.operations.comparison import compare_numbers
from models.operations.encoding import RegressParams, RegressResult, RerankParams, RerankResult
from models.operations.operation import Operation, always
from models.operations.windows import Aggregation, in_windows
from models.tasks.model import BatchFunction, Model, SinglePart, Values
from models.tasks.registry import register
from models.tasks.text_encoder import EncoderConfig
from models.tasks.windowed import WindowsQuery, aggregated, check_windows, results_of
from models.text.config import load_tokenizer
from models.text.encoding import EncodedText, EncoderTexts, Pairs, computed_by_length, encoder_inputs
from models.text.limits import several
from models.text.tokenization import EncoderTokenizer

__all__ = ["REGRESS", "RERANK", "RegressQuery", "Regression", "Regressor", "RegressorConfig"]

Activation = Literal["sigmoid", "none"]


class RegressorConfig(EncoderConfig):
    """The section of a model that gives a text, or a pair of texts, a number."""

    required_graphs = frozenset({"regress"})
    has_output_layer = False
    pairs: Pairs | None = None
    """How two texts are read together; none of a model of single texts."""
    activation: Activation = "none"
    """What scores of `rerank` are made of the numbers by, unless a request says otherwise."""


@dataclass(frozen=True, slots=True)
class Regression:
    """A text and the number of it, or of the pair whose second text it is."""

    text: str
    """The text as it was given."""
    value: float
    """The number that the model gives it."""
    activation: Activation = "none"
    """What its score is made by."""
    truncated: int | None = None
    """Tokens that `truncate` left out; None where there are none."""
    windows: int | None = None
    """Windows that the text was read in; None without windows."""

    @property
    def score(self) -> float:
        """Return the number, or its sigmoid."""
        return self.value if self.activation == "none" else 0.5 * (1 + math.tanh(0.5 * self.value))


@dataclass(frozen=True, slots=True)
class RegressQuery(SinglePart):
    """A checked and tokenized text, or pair of texts."""

    text: str
    encoded: EncodedText
    activation: Activation = "none"

    @property
    def length(self) -> int:
        return len(self.encoded.tokens)

    @property
    def result_items(self) -> int:
        """Numbers of the result."""
        return 1


RERANK = Operation["Regressor", str, RerankParams, Regression](
    name="rerank",
    summary="Return how well each text answers a query.",
    about="A query, and texts that may answer it. Results are in the order of the texts.",
    query=lambda model, text, params, _: model.rerank_queries(
        params.query, [text], activation=params.activation, truncate=params.truncate
    )[0],
    queries=lambda model, texts, params: model.rerank_queries(
        params.query, texts, activation=params.activation, truncate=params.truncate
    ),
    params=RerankParams,
    repeatable=always,
    record=RerankResult,
    compare=compare_numbers("score"),
    computed_by=lambda params: "regress",
    result_items=lambda model, params: 1,
    omits_null=True,
    cells=lambda result: (f"{result.score:.6f}", result.text),
    examples=(
        {
            "query": "how do I reset my password?",
            "text": ["Choose Forgot password on the login page.", "Our office is open from 9 to 5."],
        },
    ),
    needed=("query",),
)

REGRESS = Operation["Regressor", str, RegressParams, Regression](
    name="regress",
    summary="Return the number that a model gives each text.",
    about="Texts, or pairs with a second text, to give a number.",
    query=lambda model, text, params, _: model.queries_of([text], **params.model_dump())[0],
    queries=lambda model, texts, params: model.queries_of(texts, **params.model_dump()),
    params=RegressParams,
    repeatable=always,
    record=RegressResult,
    compare=compare_numbers("value"),
    result_items=lambda model, params: 1,
    counts_parts=in_windows,
    omits_null=True,
    cells=lambda result: (f"{result.value:.6f}", result.text),
    examples=({"text": "the delivery was late and the letter unanswered"},),
)


@register("text-regression")
class Regressor(Model[RegressorConfig]):
    """A loaded bundle that gives texts and pairs of texts a number. Safe to call from several threads.

    `rerank` and `regress` do a whole job; a server makes queries of texts (`queries`, `rerank_queries`) and computes
    them in batches (`batch_functions`).
    """

    config_type = RegressorConfig
    operations = (RERANK, REGRESS)

    def __init__(
        self, manifest: BundleManifest[RegressorConfig], tokenizer: EncoderTokenizer, backend: Backend
    ) -> None:
        super().__init__(manifest, backend)
        limits = self.config.limits
        self._texts = EncoderTexts(tokenizer, limits.max_tokens, self.config.vocab_size, self.config.pairs)
        self.longest_input = limits.max_tokens

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        return cls(manifest, load_tokenizer(EncoderTokenizer, path, manifest.config), backend)

    def rerank(
        self, query: str, texts: Sequence[str], *, activation: Activation | None = None, truncate: bool = False
    ) -> list[Regression]:
        """Return how well each text answers the query, in the order of the texts.

        `activation` says what the score is made of the model's number by, if not as the bundle has it. `truncate` cuts
        the longer of query and text, or both, where they are too long together. Raises `QueryError` for a model of
        single texts, and its `TextTooLongError`.
        """
        return self.run(self.rerank_queries(query, several(texts), activation=activation, truncate=truncate))

    def regress(
        self,
        texts: Sequence[str],
        *,
        text_pair: str | None = None,
        windows: Aggregation | None = None,
        overlap: int | None = None,
        truncate: bool = False,
    ) -> list[Regression]:
        """Return the number of each text, or of each pair with a second text `text_pair`; see `rerank` for errors.

        `windows` reads a text that is too long in windows that share `overlap` tokens, by default an eighth, and
        returns the mean or the maximum of their numbers; raises `QueryError` for pairs.
        """
        queries = self.queries_of(
            several(texts), text_pair=text_pair, windows=windows, overlap=overlap, truncate=truncate
        )
        return results_of(self, queries)

    def rerank_queries(
        self, query: str | None, texts: Sequence[str], *, activation: Activation | None = None, truncate: bool = False
    ) -> list[RegressQuery]:
        """Check and tokenize texts for a query; see `rerank`."""
        if query is None:
            raise QueryError("query is missing: the text that each text is scored for")
        chosen = self.config.activation if activation is None else activation
        encoded = self._texts.paired([(query, text) for text in texts], truncate=truncate)
        return [RegressQuery(text, each, chosen) for text, each in zip(texts, encoded, strict=True)]

    def queries_of(
        self,
        texts: Sequence[str],
        *,
        text_pair: str | None = None,
        windows: Aggregation | None = None,
        overlap: int | None = None,
        truncate: bool = False,
    ) -> Sequence[RegressQuery | WindowsQuery[RegressQuery]]:
        """Check and tokenize texts, in windows where these are chosen; see `regress`."""
        check_windows(windows, overlap, truncate=truncate, text_pair=text_pair)
        if windows is None:
            return self.queries(texts, text_pair=text_pair, truncate=truncate)
        return [
            WindowsQuery(text, tuple(RegressQuery(text, each) for each in some), windows)
            for text, some in zip(texts, self._texts.windowed(texts, overlap), strict=True)
        ]

    def queries(
        self, texts: Sequence[str], *, text_pair: str | None = None, truncate: bool = False
    ) -> list[RegressQuery]:
        """Check and tokenize texts; see `regress`."""
        if text_pair is None:
            encoded = self._texts.single(texts, truncate=truncate)
        else:
            encoded = self._texts.paired([(text, text_pair) for text in texts], truncate=truncate)
        return [RegressQuery(text, each) for text, each in zip(texts, encoded, strict=True)]

    def pair_queries(self, pairs: Sequence[tuple[str, str]], *, truncate: bool = False) -> list[RegressQuery]:
        """Check and tokenize pairs of texts; see `regress`."""
        encoded = self._texts.paired(pairs, truncate=truncate)
        return [RegressQuery(text, each) for (text, _), each in zip(pairs, encoded, strict=True)]

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"regress": self.run}

    def warm_up_parts(self, operation: str, count: int, length: int) -> list[RegressQuery]:
        return [RegressQuery("", self._texts.sample(length))] * count

    def self_test(self) -> None:
        self.regress(["a"], truncate=True)

    def run(self, queries: Sequence[RegressQuery]) -> list[Regression]:
        """Return results in the order of the queries; similar lengths are computed together."""
        on_cpu = self.backend.device == "cpu"
        return computed_by_length(queries, lambda query: query.length, self._run, on_cpu=on_cpu)

    def _run(self, queries: Sequence[RegressQuery]) -> list[Regression]:
        inputs = encoder_inputs([each.encoded for each in queries], self.config.pairs)
        (values,) = self.backend.run("regress", inputs, ["values"])
        return [
            Regression(query.text, float(value), query.activation, query.encoded.truncated)
            for query, value in zip(queries, values, strict=True)
        ]

    def result(self, query: RegressQuery | WindowsQuery[RegressQuery], outputs: Values) -> Regression:
        """Return the one output, or those of windows together."""
        if not isinstance(query, WindowsQuery):
            return outputs[0]  # type: ignore[no-any-return]
        value = float(aggregated([each.value for each in outputs], query.aggregation))
        return Regression(query.text, value, windows=len(outputs))
