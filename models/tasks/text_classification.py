"""Text classification: texts in, probabilities of their classes out. All log-probabilities are base e.

Shapes: `B` texts, `T` tokens, `k` classes asked for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np

from models.backend import Array, Backend
from models.bundle.manifest import AnyManifest, BundleManifest
from models.errors import QueryError
from models.operations.classification import (
    TEMPLATE,
    ClassifyImageParams,
    ClassifyParams,
    ClassifyResult,
    ZeroShotParams,
    ZeroShotResult,
    most_classes,
)
from models.operations.comparison import compare_classes
from models.operations.operation import AnyOperation, Operation, Output, TokenForm, always
from models.operations.windows import Aggregation, in_windows
from models.tasks.labels import (
    CLASSES_OUTPUTS,
    Choice,
    ChoiceOptions,
    ClassesConfig,
    Label,
    Ranked,
    Ranking,
    Scoped,
    classes_cells,
    read_labels,
    read_sets,
)
from models.tasks.model import BatchFunction, Model, SinglePart, Values
from models.tasks.prediction_sets import SetPredictor
from models.tasks.registry import register
from models.tasks.text_encoder import EncoderConfig
from models.tasks.windowed import WindowsQuery, aggregated, check_windows, results_of
from models.tasks.zero_shot import NORMALIZERS, Entailment, HypothesisPart, ZeroShot, ZeroShotQuery, hypotheses_of
from models.text.config import load_tokenizer
from models.text.encoding import EncodedText, EncoderTexts, Pairs, computed_by_length, encoder_inputs
from models.text.limits import several
from models.text.tokenization import EncoderTokenizer

__all__ = ["ZERO_SHOT", "Classification", "Classifier", "ClassifierConfig", "ClassifyQuery"]

_CLASSES_OF_ITEM = 16
"""Probabilities of classes that take the memory of one result item."""


class ClassifierConfig(ClassesConfig, EncoderConfig):
    """The section of a text classifier."""

    pairs: Pairs | None = None
    """How two texts are read together; none of a model of single texts."""


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
    windows: int | None = None
    """Windows that the text was read in; None without windows."""
    calibration_examples: int | None = None
    """Calibration examples of a prediction set; None without coverage."""


@dataclass(frozen=True, slots=True)
class ClassifyQuery(SinglePart):
    """A checked and tokenized text."""

    text: str
    encoded: EncodedText
    choice: Choice

    @property
    def result_items(self) -> int:
        """Largest number of classes of the result."""
        return self.choice.top_k

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens, `[CLS]` and `[SEP]` included."""
        return self.encoded.tokens

    @property
    def truncated(self) -> int | None:
        """Tokens that were left out."""
        return self.encoded.truncated

    @property
    def length(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class ClassifyWindow(SinglePart):
    """A window of a text. Its output is the probabilities of the listed classes, and the score before the softmax of
    the best one where the rule for texts out of scope needs it, else 0: `[C + 1]`."""

    encoded: EncodedText
    classes: int
    choice: Choice

    @property
    def length(self) -> int:
        return len(self.encoded.tokens)

    @property
    def result_items(self) -> int:
        """Memory of the probabilities, as of so many labels."""
        return math.ceil(self.classes / _CLASSES_OF_ITEM)


@dataclass(frozen=True, slots=True)
class WindowsClassifyQuery(WindowsQuery[ClassifyWindow]):
    """A checked and tokenized text in windows."""

    choice: Choice


CLASSIFY = Operation["Classifier", str, ClassifyParams, Classification](
    name="classify",
    summary="Return the most probable classes of each text or image.",
    about="Texts or images to classify.",
    query=lambda model, text, params, _: model.queries_of([text], **params.model_dump())[0],
    queries=lambda model, texts, params: model.queries_of(texts, **params.model_dump()),
    params=ClassifyParams,
    repeatable=always,
    record=ClassifyResult,
    compare=compare_classes,
    result_items=lambda model, params: most_classes(params, len(model.labels)),
    counts_parts=in_windows,
    omits_null=True,
    cells=lambda result: (*classes_cells(result), result.text),
    outputs=CLASSES_OUTPUTS,
    classes="probability",
    tokens=TokenForm["Classifier", ClassifyImageParams, Classification](
        query=lambda model, ids, params: model.token_query(ids, **params.model_dump()),
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

_FEW_LABELS = 16
"""Hypotheses of more labels are tokenized on a thread."""

ZERO_SHOT = Operation["Classifier", str, ZeroShotParams, ZeroShot](
    name="zero-shot",
    summary="Return the most probable ones of the request's own labels for each text.",
    about="Texts to classify by labels of the request.",
    query=lambda model, text, params, _: model.zero_shot_queries([text], **params.model_dump())[0],
    queries=lambda model, texts, params: model.zero_shot_queries(texts, **params.model_dump()),
    params=ZeroShotParams,
    repeatable=always,
    record=ZeroShotResult,
    compare=compare_classes,
    computed_by=lambda params: "classify",
    result_items=lambda model, params: len(params.labels),
    slowly_prepared=lambda params: len(params.labels) > _FEW_LABELS,
    omits_null=True,
    cells=lambda result: (result.labels[0].label, result.labels[0].probability, result.text),
    outputs=(
        Output(
            name="candidate",
            kind="text",
            several=True,
            values=lambda _, found: [each.label for each in found.labels],
        ),
        Output(
            name="candidate_probability",
            kind="number",
            several=True,
            values=lambda _, found: [each.probability for each in found.labels],
        ),
    ),
    examples=(
        {"text": "My parcel has not arrived yet.", "labels": ["delivery", "payment", "returns"]},
        {
            "text": ["The screen is bright, the battery is weak.", "It arrived late."],
            "labels": ["display", "battery", "delivery"],
            "template": "This review is about {}.",
            "multi_label": True,
        },
    ),
    needed=("labels",),
)


@register("text-classification")
class Classifier(Scoped, Model[ClassifierConfig]):
    """A loaded bundle that classifies texts. Safe to call from several threads.

    `classify` does a whole job; a server makes queries of texts (`query`) and computes them in batches
    (`batch_functions`).
    """

    config_type = ClassifierConfig
    operations = (CLASSIFY, ZERO_SHOT)

    def __init__(
        self,
        manifest: BundleManifest[ClassifierConfig],
        tokenizer: EncoderTokenizer,
        labels: Sequence[str],
        backend: Backend,
        sets: SetPredictor | None = None,
    ) -> None:
        super().__init__(manifest, backend)
        self.labels: tuple[str, ...] = tuple(labels)
        self.number_of: Mapping[str, int] = {label: number for number, label in enumerate(self.labels)}
        self._ranking = Ranking.of(labels, self.config, sets)
        self._entailment = Entailment.of(self.labels) if ZERO_SHOT in self.operations else None
        limits = self.config.limits
        self._texts = EncoderTexts(tokenizer, limits.max_tokens, self.config.vocab_size, self.config.pairs)
        self.longest_input = limits.max_tokens

    @classmethod
    def operations_of(cls, manifest: AnyManifest) -> tuple[AnyOperation, ...]:
        """Return the operations; zero-shot classification is one of models of pairs whose graph has `NORMALIZERS`."""
        if cls._has_normalizers(manifest) and manifest.config.pairs is not None:
            return cls.operations
        return tuple(each for each in cls.operations if each is not ZERO_SHOT)

    @staticmethod
    def _has_normalizers(manifest: AnyManifest) -> bool:
        return any(each.name == NORMALIZERS for each in manifest.graphs["classify"].outputs)

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        tokenizer = load_tokenizer(EncoderTokenizer, path, manifest.config)
        return cls(manifest, tokenizer, read_labels(path, manifest.config), backend, read_sets(path, manifest.config))

    def classify(
        self,
        texts: Sequence[str],
        top_k: int = 5,
        *,
        windows: Aggregation | None = None,
        overlap: int | None = None,
        truncate: bool = False,
        **options: Unpack[ChoiceOptions],
    ) -> list[Classification]:
        """Return the `top_k` most probable classes of each text, all where there are fewer; none of probability 0.

        `windows` reads a text that is too long in windows that share `overlap` tokens, by default an eighth, and
        returns the mean or the maximum of the probability of each class in them; maxima may add up to more than 1.
        `truncate` keeps head and tail of a text that is too long. `options` are those of `ChoiceOptions`: a prediction
        set with a coverage in place of the best classes, and probabilities without calibration. Raises `QueryError` for
        `top_k` below 1, for a text of white space alone if the model has no rule for texts out of scope, for a coverage
        that is out of reach and for parameters that do not fit each other, and its `TextTooLongError`.
        """
        queries = self.queries_of(several(texts), top_k, windows=windows, overlap=overlap, truncate=truncate, **options)
        return results_of(self, queries)

    def query(self, text: str, top_k: int = 5, *, truncate: bool = False) -> ClassifyQuery:
        """Check and tokenize one text; see `classify`."""
        return self.queries([text], top_k, truncate=truncate)[0]

    def queries_of(
        self,
        texts: Sequence[str],
        top_k: int = 5,
        *,
        windows: Aggregation | None = None,
        overlap: int | None = None,
        truncate: bool = False,
        text_pair: str | None = None,
        **options: Unpack[ChoiceOptions],
    ) -> Sequence[ClassifyQuery | WindowsClassifyQuery]:
        """Check and tokenize texts, in windows where these are chosen; see `classify`."""
        check_windows(windows, overlap, truncate=truncate, text_pair=text_pair)
        if windows is None:
            return self.queries(texts, top_k, truncate=truncate, text_pair=text_pair, **options)
        self._check_blank(texts)
        choice, classes = self._ranking.choice(top_k, **options), len(self.labels)
        if choice.coverage is not None:
            raise QueryError("a coverage is for texts that are read as a whole, as calibration examples were")
        return [
            WindowsClassifyQuery(text, tuple(ClassifyWindow(each, classes, choice) for each in some), windows, choice)
            for text, some in zip(texts, self._texts.windowed(texts, overlap), strict=True)
        ]

    def queries(
        self,
        texts: Sequence[str],
        top_k: int = 5,
        *,
        truncate: bool = False,
        text_pair: str | None = None,
        **options: Unpack[ChoiceOptions],
    ) -> list[ClassifyQuery]:
        """Check and tokenize texts, each with `text_pair` as its second text where there is one; see `classify`."""
        if text_pair is not None:
            return self.pair_queries([(text, text_pair) for text in texts], top_k, truncate=truncate, **options)
        self._check_blank(texts)
        return self._queries(
            texts, self._texts.single(texts, truncate=truncate), self._ranking.choice(top_k, **options)
        )

    def _check_blank(self, texts: Sequence[str]) -> None:
        if self._ranking.rule is None and not all(map(str.strip, texts)):
            raise QueryError("the text is empty, and this model has no rule for texts out of scope")

    def pair_queries(
        self,
        pairs: Sequence[tuple[str, str]],
        top_k: int = 5,
        *,
        truncate: bool = False,
        **options: Unpack[ChoiceOptions],
    ) -> list[ClassifyQuery]:
        """Check and tokenize pairs of texts, such as premise and hypothesis; results have the first text.

        Raises `QueryError` for a model of single texts.
        """
        choice = self._ranking.choice(top_k, **options)
        return self._queries([text for text, _ in pairs], self._texts.paired(pairs, truncate=truncate), choice)

    @staticmethod
    def _queries(texts: Sequence[str], encoded: Sequence[EncodedText], choice: Choice) -> list[ClassifyQuery]:
        return [ClassifyQuery(text, each, choice) for text, each in zip(texts, encoded, strict=True)]

    def token_query(self, ids: Sequence[int], top_k: int = 5, **options: Unpack[ChoiceOptions]) -> ClassifyQuery:
        """Check a text that is given as token ids, `[CLS]` and `[SEP]` included; see `classify`."""
        return ClassifyQuery("", self._texts.given(ids), self._ranking.choice(top_k, **options))

    def log_probabilities(self, texts: Sequence[str]) -> Array:
        """Return the log-probabilities `[N, C]` of all classes, the unlisted one included, as the output layer gives
        them, without calibration; texts that are too long are cut."""
        on_cpu = self.backend.device == "cpu"
        encoded = self._texts.single(texts, truncate=True)
        return np.stack(computed_by_length(encoded, lambda each: len(each.tokens), self._every_class, on_cpu=on_cpu))

    @property
    def has_scores(self) -> bool:
        """Whether the graph tells scores before the softmax."""
        return self._has_normalizers(self.manifest)

    def scores(self, texts: Sequence[str]) -> Array:
        """Return the score before the softmax of the best listed class of each text, `[N]`; too long ones are cut.

        Raises `ValueError` for a model without `has_scores`.
        """
        if not self.has_scores:
            raise ValueError(f"the graph has no output {NORMALIZERS!r}")
        on_cpu = self.backend.device == "cpu"
        encoded = self._texts.single(texts, truncate=True)
        return np.array(computed_by_length(encoded, lambda each: len(each.tokens), self._best_scores, on_cpu=on_cpu))

    def _best_scores(self, encoded: Sequence[EncodedText]) -> list[float]:
        inputs = {**encoder_inputs(encoded, self.config.pairs), "k": np.array(min(2, self._ranking.count))}
        outputs = ["log_probabilities", "classes", NORMALIZERS]
        found: list[float] = self._ranking.scores(*self.backend.run("classify", inputs, outputs)).tolist()
        return found

    def _every_class(self, encoded: Sequence[EncodedText]) -> list[Array]:
        inputs = {**encoder_inputs(encoded, self.config.pairs), "k": np.array(self._ranking.count)}
        return list(self._ranking.in_order(*self.backend.run("classify", inputs, ["log_probabilities", "classes"])))

    def zero_shot(
        self,
        texts: Sequence[str],
        labels: Sequence[str],
        template: str = TEMPLATE,
        *,
        multi_label: bool = False,
        truncate: bool = False,
    ) -> list[ZeroShot]:
        """Return the candidate labels of each text with probabilities, as `ZeroShotClassificationPipeline` of
        transformers does; a label takes the place of `{}` in the template.

        The probabilities are a softmax over the labels, or with `multi_label`, and where there is one label, that of
        entailment against contradiction. `truncate` shortens a text that is too long together with a hypothesis, at
        its end. Raises `QueryError` for a model that was not imported for this, and its `TextTooLongError`.
        """
        queries = self.zero_shot_queries(several(texts), labels, template, multi_label=multi_label, truncate=truncate)
        outputs = iter(self.run([part for query in queries for part in query.parts()]))
        return [self.result(query, [next(outputs) for _ in query.labels]) for query in queries]

    def zero_shot_queries(
        self,
        texts: Sequence[str],
        labels: Sequence[str],
        template: str = TEMPLATE,
        *,
        multi_label: bool = False,
        truncate: bool = False,
    ) -> list[ZeroShotQuery]:
        """Check and tokenize texts with the hypothesis of each label; see `zero_shot`."""
        if self._entailment is None:
            raise QueryError(f"this model does not classify by labels of a request: {self._obstacle}")
        if not all(map(str.strip, texts)):
            raise QueryError("the text is empty")
        hypotheses = hypotheses_of(labels, template)
        pairs = self._texts.products(texts, hypotheses, truncate=truncate)
        return [ZeroShotQuery(text, tuple(labels), multi_label, some) for text, some in zip(texts, pairs, strict=True)]

    @property
    def _obstacle(self) -> str:
        """Why the model has no zero-shot classification."""
        if self.config.pairs is None:
            return "it reads single texts, no pairs of premise and hypothesis"
        if Entailment.of(self.labels) is None:
            return 'none of its classes has a name that begins with "entail"'
        if self.config.classes.independent:
            return "its classes are independent of each other"
        return f"its graph has no output {NORMALIZERS!r}; import it again"

    @property
    def batch_functions(self) -> Mapping[str, BatchFunction]:
        return {"classify": self.run}

    def warm_up_parts(self, operation: str, count: int, length: int) -> list[ClassifyQuery]:
        return [ClassifyQuery("", self._texts.sample(length), Choice(min(5, len(self.labels))))] * count

    def self_test(self) -> None:
        self.classify(["a"], 1, truncate=True)

    def run(self, queries: Sequence[Any]) -> list[Any]:
        """Return the `Classification` of each `ClassifyQuery`, the scores `[C]` of each `HypothesisPart` and the
        output `[C + 1]` of each `ClassifyWindow`, in their order; similar lengths are computed together."""
        on_cpu = self.backend.device == "cpu"
        return computed_by_length(queries, lambda query: query.length, self._run, on_cpu=on_cpu)

    def _run(self, queries: Sequence[ClassifyQuery | HypothesisPart | ClassifyWindow]) -> list[Classification | Array]:
        inputs = encoder_inputs([query.encoded for query in queries], self.config.pairs)
        choices = [Choice(len(self.labels)) if isinstance(query, HypothesisPart) else query.choice for query in queries]
        outputs = ["log_probabilities", "classes"]
        scored = self._ranking.needs_normalizers
        if scored or any(isinstance(query, HypothesisPart) for query in queries):
            outputs.append(NORMALIZERS)
        values, classes, *normalizers = self.backend.run(
            "classify", {**inputs, "k": self._ranking.requested(choices)}, outputs
        )
        ranked = [row for row, query in enumerate(queries) if isinstance(query, ClassifyQuery)]
        best = iter(
            self._ranking.best(
                values[ranked],
                classes[ranked],
                [choices[row] for row in ranked],
                lambda place: np.array(queries[ranked[place]].encoded.tokens).tobytes(),
                normalizers[0][ranked] if scored else None,
            )
        )
        found: list[Classification | Array] = []
        for row, query in enumerate(queries):
            if isinstance(query, ClassifyQuery):
                found.append(self._result(query.text, next(best), query.truncated))
            elif isinstance(query, ClassifyWindow):
                calibrated, place = query.choice.calibrated, slice(row, row + 1)
                score = self._ranking.scores(values[place], classes[place], normalizers[0][place]) if scored else [0.0]
                probabilities = self._ranking.probabilities(values[row], classes[row], calibrated=calibrated)
                found.append(np.append(probabilities, score))
            else:
                found.append(values[row][classes[row].argsort()] + normalizers[0][row])
        return found

    def result(self, query: Any, outputs: Values) -> Any:
        """Return the one output, the labels of a text from the scores of their hypotheses, or those of its windows."""
        if isinstance(query, WindowsClassifyQuery):
            *probabilities, score = aggregated(outputs, query.aggregation)
            ranked = self._ranking.of_probabilities(np.array(probabilities), query.choice.top_k, float(score))
            return self._result(query.text, ranked, windows=len(outputs))
        if not isinstance(query, ZeroShotQuery):
            return outputs[0]
        assert self._entailment is not None
        return query.result(outputs, self._entailment)

    @staticmethod
    def _result(text: str, ranked: Ranked, truncated: int | None = None, windows: int | None = None) -> Classification:
        outside = ranked.out_of_scope
        if outside is not None:
            outside = outside or not text.strip()
        return Classification(text, ranked.labels, outside, truncated, windows, ranked.calibration_examples)
