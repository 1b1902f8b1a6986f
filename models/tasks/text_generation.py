"""Text generation: a text in, n-best other texts out, such as its summary. All log-probabilities are base e."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from models.backend import Backend
from models.bundle.contract import PositiveInt
from models.bundle.manifest import BundleManifest
from models.decoding.beam_search import Hypothesis, SearchOptions
from models.decoding.sequence_to_sequence import BATCH_SOURCES, SourceSequence, checked_options
from models.errors import QueryError
from models.operations.comparison import compare_texts
from models.operations.generation import GenerateParams, GenerateResult
from models.operations.operation import Operation, Output, always
from models.tasks.model import SinglePart
from models.tasks.registry import register
from models.tasks.sequence_model import SequenceConfig, SequenceModel, SequenceNetwork
from models.text.config import TextLimits
from models.text.limits import TextLimit, head, several
from models.text.tokenization import EncoderTokenizer

__all__ = ["Generated", "Generation", "GenerationConfig", "GenerationQuery", "Generator", "UnilmNetwork"]


class UnilmNetwork(SequenceNetwork):
    """The sizes of an encoder that also generates (UniLM, Dong et al. 2019)."""

    kind: Literal["unilm"]
    """Kind of network."""
    layers: PositiveInt
    """Transformer layers."""
    positions: PositiveInt
    """Tokens that a text and its output may have together, the special ones included."""


class GenerationLimits(TextLimits):
    """The longest texts that the model reads and writes."""

    max_output_tokens: PositiveInt
    """Longest output in tokens, its end not counted."""


class GenerationConfig(SequenceConfig):
    """The section of a text generator."""

    network: UnilmNetwork
    limits: GenerationLimits

    @model_validator(mode="after")
    def _texts_fit_the_network(self) -> Self:
        if self.limits.max_tokens + self.limits.max_output_tokens >= self.network.positions:
            raise ValueError(
                f"limits.max_tokens and limits.max_output_tokens must be less than network.positions, "
                f"{self.network.positions}, together"
            )
        return self

    def description(self) -> Mapping[str, str]:
        return {**super().description(), "outputs": f"of up to {self.limits.max_output_tokens} tokens"}


@dataclass(frozen=True, slots=True)
class Generated:
    """An output text."""

    text: str
    """The output."""
    score: float
    """Its log-probability / length^alpha; the end token counts where the length limit did not cut the text off."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A text and its output texts, best first."""

    text: str
    """The text as it was given."""
    outputs: tuple[Generated, ...]
    """The `n_best` outputs."""
    truncated: int | None = None
    """Tokens of the text that `truncate` left out, an estimate for a very long text; None where it was not cut."""


@dataclass(frozen=True, slots=True)
class GenerationQuery(SourceSequence, SinglePart):
    """A checked and tokenized text."""

    text: str = ""
    truncated: int | None = None
    """Tokens of the text that were left out."""


GENERATE = Operation["Generator", str, GenerateParams, Generation](
    name="generate",
    summary="Generate a text from each text, independently of the others and of other requests.",
    about="Texts from which to generate others, such as summaries or questions, as the model was trained to.",
    query=lambda model, text, params, _: model.query(
        text,
        params.beam_size,
        options=params.options(),
        max_output_tokens=params.max_output_tokens,
        truncate=params.truncate,
    ),
    params=GenerateParams,
    repeatable=always,
    record=GenerateResult,
    compare=compare_texts("outputs"),
    path="generate-text",
    title="Generate",
    omits_null=True,
    cells=lambda result: (result.outputs[0].text,),
    outputs=(
        Output(name="output", kind="text", values=lambda _, result: result.outputs[0].text),
        Output(name="score", kind="number", values=lambda _, result: result.outputs[0].score),
    ),
    examples=({"text": "The meeting is moved to Friday at ten.", "beam_size": 4, "max_output_tokens": 20},),
)


@register("text-generation")
class Generator(SequenceModel[GenerationConfig, EncoderTokenizer]):
    """A loaded bundle that generates texts. Safe to call from several threads.

    `generate` does a whole job; a server makes queries of texts (`query`), decodes their sources continuously
    (`start_decoding`), and makes texts of the hypotheses (`result`).
    """

    config_type = GenerationConfig
    tokenizer_type = EncoderTokenizer
    step_vectors = 2  # of a token, and of a mask token if the model was trained with masked targets
    operations = (GENERATE,)

    def __init__(
        self, manifest: BundleManifest[GenerationConfig], tokenizer: EncoderTokenizer, backend: Backend
    ) -> None:
        super().__init__(manifest, tokenizer, backend)
        self._limit = TextLimit(self.config.limits.max_tokens, added_tokens=2)
        self.longest_input = self._limit.max_tokens
        self.max_output_tokens = self.config.limits.max_output_tokens
        """Tokens of the longest output, its end not counted."""

    def generate(
        self,
        texts: Sequence[str],
        beam_size: int = 5,
        *,
        options: SearchOptions | None = None,
        max_output_tokens: int | None = None,
        truncate: bool = False,
        batch_size: int = BATCH_SOURCES,
    ) -> list[Generation]:
        """Generate outputs for each text; `beam_size` 1 is greedy search.

        `max_output_tokens` is at most the model's own, which is the default; an output that has not ended by then is
        cut off and ranked behind those that have. `truncate` keeps the first tokens of a text that is too long. Raises
        `QueryError` for options out of range, and its `TextTooLongError`.
        """
        queries = [
            self.query(text, beam_size, options=options, max_output_tokens=max_output_tokens, truncate=truncate)
            for text in several(texts)
        ]
        found = self.decoder.search(queries, batch_size)
        return [self.result(query, [hypotheses]) for query, hypotheses in zip(queries, found, strict=True)]

    def query(
        self,
        text: str,
        beam_size: int = 5,
        *,
        options: SearchOptions | None = None,
        max_output_tokens: int | None = None,
        truncate: bool = False,
    ) -> GenerationQuery:
        """Check and tokenize one text; see `generate`."""
        options, keep = checked_options(beam_size, options), head if truncate else None
        longest = self.max_output_tokens if max_output_tokens is None else max_output_tokens
        if not 1 <= longest <= self.max_output_tokens:
            raise QueryError(f"max_output_tokens must be between 1 and {self.max_output_tokens}, not {longest}")
        tokens = self._tokenizer.encode(self._limit.characters(text, keep))
        read = (self._tokenizer.start_id, *self._limit.tokens(tokens, keep))
        return GenerationQuery(read, beam_size, options, longest, text, self._limit.left_out(text, tokens))

    def warm_up_parts(self, operation: str, count: int, length: int) -> list[SourceSequence]:
        unknown = [self.config.special_tokens.unknown] * max(0, min(length, self._limit.max_tokens) - 2)
        tokens = (self._tokenizer.start_id, *unknown)
        return [SourceSequence(tokens, 5, SearchOptions(), min(length + 10, self.max_output_tokens))] * count

    def self_test(self) -> None:
        self.generate(["a"], truncate=True)

    def result(self, query: GenerationQuery, outputs: Sequence[Sequence[Hypothesis]]) -> Generation:
        """Return the texts of the hypotheses of a query's one source."""
        texts = self._tokenizer.decode_batch([hypothesis.tokens for hypothesis in outputs[0]])
        generated = [Generated(text, hypothesis.score) for text, hypothesis in zip(texts, outputs[0], strict=True)]
        return Generation(query.text, tuple(generated), query.truncated)
