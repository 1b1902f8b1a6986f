"""Next words and scores of sentences: parameters, records and the operations.

Models of words and models of subword tokens offer the same operations: where a model has subwords, words are tokens.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field

from models.operations.comparison import compare_scores, compare_words
from models.operations.operation import (
    Operation,
    Output,
    Params,
    Record,
    Scalar,
    Table,
    TokenForm,
    Truncated,
    TruncateParams,
    always,
)
from models.operations.query import Query

__all__ = [
    "MOST_SET_WORDS",
    "NEXT_WORD",
    "SCORE",
    "ComponentWeight",
    "ExplainedScore",
    "ExplainedToken",
    "NextWordParams",
    "NextWordResult",
    "PredictsWords",
    "ScoreParams",
    "ScoreResult",
    "Token",
    "TokenizedWord",
    "Unit",
    "Word",
]

Unit = Literal["word", "token"]
"""Units that a text is divided into."""
MOST_SET_WORDS = 1000
"""The largest number of words of a set with a coverage."""


class NextWordParams(TruncateParams):
    """What can be chosen of the next words."""

    top_k: Annotated[int, Field(ge=1, description="Words to return; all where there are fewer.")] = 10
    explain: Annotated[bool, Field(description="Return the weight of each mixture component.")] = False
    coverage: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="Return the smallest set of words that holds the next word of a text with this probability, "
            "such as 0.5, in place of `top_k` words. The set is computed from the model's calibration examples, which "
            "must be enough for it.",
        ),
    ] = None
    randomized: Annotated[
        bool,
        Field(
            description="With a coverage: make sets that have exactly the coverage on average, by a number drawn from "
            "the context. They may be empty."
        ),
    ] = False
    unit: Annotated[
        Unit | None,
        Field(
            description="Return words, as by default, or with `token` the distribution of a model of subwords itself. "
            "The probability of a word is the sum over all tokens that spell it, given that the last word of the "
            "context has ended; white space at the end of the context is left out for it."
        ),
    ] = None


class ScoreParams(TruncateParams):
    """What can be chosen of a score."""

    explain: Annotated[
        bool, Field(description="Return each token's rank, the entropy before it, and the most probable words instead.")
    ] = False
    top_k: Annotated[
        int,
        Field(
            ge=1, le=100, description="Words to return instead of each token, with explain; all where there are fewer."
        ),
    ] = 5
    unit: Annotated[
        Unit | None,
        Field(
            description="With `word`, return the words of the text, too, for a model of subwords, with the value of "
            "their tokens corrected for where words end (Pimentel and Meister 2024)."
        ),
    ] = None
    stride: Annotated[
        int | None,
        Field(
            ge=1,
            description="Read a text that is longer than the limit of a model of subwords in windows of as many tokens "
            "as the limit, each so many tokens after the one before, so that a token is scored after at least the "
            "limit less the stride of the tokens before it. Without a stride such a text is refused, or cut with "
            "truncate.",
        ),
    ] = None
    lines: Annotated[
        bool,
        Field(
            description="Read the lines of a text as the sentences of a document: each is scored with its sentence end "
            "and after all lines before it, which the state of a model of words and its cache go on over."
        ),
    ] = False

    @property
    def alternatives(self) -> int:
        """Words to return instead of each token."""
        return self.top_k if self.explain else 0


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _is_none(value: object) -> bool:
    return value is None


Finite = Annotated[float | None, BeforeValidator(_finite)]
"""A number, or `null` where it is infinite: JSON has no infinity."""


class Word(Record):
    """A word of the vocabulary, or the end of the sentence, which is spelled `</s>`; of a model of subwords a token."""

    word: str
    """The word, or `</s>`. The text of a token, with the space before a word; U+FFFD for parts of a character."""
    probability: float
    """Its probability, above 0."""
    log_probability: float
    """Natural logarithm of the probability."""
    sentence_end: bool
    """Whether it is the end of the sentence, or of a text."""
    token: int | None = Field(default=None, exclude_if=_is_none, description="Id of a token of a model of subwords.")
    upper_bound: float | None = Field(
        default=None,
        exclude_if=_is_none,
        description="For a word of a model of subwords: the largest probability that it may have; `probability` is the "
        "smallest.",
    )


class ComponentWeight(Record):
    """Weight of one mixture component in this context."""

    kernel: str
    """Name of the component's kernel, or of a component that is none, such as `cache`."""
    weight: float
    """Its weight, 0 to 1; the weights of all components sum to 1."""
    hyperparameters: dict[str, float]
    """Values of its hyperparameters, by name, such as the scale of `cos`."""


class NextWordResult(Record):
    """The next words after one context, most probable first; entropy of the whole distribution in nats.

    Words of probability 0 are left out, so that a sparse-softmax may return fewer words than asked for.
    """

    context: str
    """The context as it was sent."""
    words: list[Word]
    """The next words, most probable first; with `coverage`, those of the set."""
    unknown: Annotated[list[str], Field(description="Words of the context that are outside the vocabulary.")]
    unknown_probability: Annotated[
        float,
        Field(
            description="Probability of any word outside the vocabulary; with all words it sums to 1. 0 for a model of "
            "subwords."
        ),
    ]
    entropy: float | None = None
    """Entropy of the whole distribution, in nats; null for the words of a model of subwords, most of which are not
    searched."""
    components: list[ComponentWeight] | None = None
    """Weights of a mixture's components, with `explain`."""
    unit: Unit | None = None
    """What the next words of a model of subwords are; null for a model of words."""
    probability_left: Annotated[
        float | None,
        Field(description="For words of a model of subwords: the probability of continuations not searched."),
    ] = None
    certain: Annotated[
        bool | None,
        Field(
            description="For words of a model of subwords: whether no other word can be among these, and their order "
            "is right."
        ),
    ] = None
    truncated: Truncated = None
    calibration_examples: Annotated[
        int | None,
        Field(description="Examples that the set was calibrated on; absent without the parameter `coverage`."),
    ] = None


class Token(Record):
    """One word of a scored text, the last being the sentence end; of a model of subwords a token of the text."""

    word: str
    """The word as the model reads it, or `</s>`."""
    log_probability: Annotated[
        Finite, Field(description="`null` where the probability is 0, and where the token is not scored.")
    ]
    unknown: Annotated[bool, Field(description="The word is outside the vocabulary.")]
    sentence_end: bool
    """Whether it is the end of the sentence."""
    scored: bool = Field(
        default=True,
        exclude_if=bool,
        description="False for the first token of a text where the model reads nothing before it, so that it has no "
        "probability.",
    )
    start: int | None = Field(
        default=None, exclude_if=_is_none, description="Its first character in the text; of a model of subwords."
    )
    end: int | None = Field(
        default=None,
        exclude_if=_is_none,
        description="The character after its last one. Tokens that are parts of one character have the same.",
    )


class ExplainedToken(Token):
    """A word and the distribution that it is drawn from: its entropy in nats, and its most probable words."""

    rank: Annotated[
        int | None,
        Field(description="1 for the most probable word; `null` where the probability is 0, or the token not scored."),
    ]
    entropy: Annotated[
        float | None,
        Field(
            description="Entropy of the distribution that the word is drawn from, in nats; `null` where the token is "
            "not scored."
        ),
    ]
    alternatives: list[Word]
    """The most probable words at this position."""


class TokenizedWord(Record):
    """A word of a text that a model of subwords has scored."""

    word: str
    """The word, without white space around it; several words that share a token."""
    start: int
    """Its first character in the text."""
    end: int
    """The character after its last one."""
    tokens: tuple[int, int]
    """Its first token in `tokens`, with white space before the word, and the one after its last."""
    log_probability: Annotated[
        Finite,
        Field(
            description="Log-probability (base e) of its tokens and that the word ends there, given that the one "
            "before has ended; `null` where it is not scored."
        ),
    ]
    surprisal: Annotated[Finite, Field(description="Surprisal in bits.")]
    token_count: Annotated[int, Field(description="Number of its tokens, those of white space before it included.")]
    entropy: float | None = Field(
        default=None,
        exclude_if=_is_none,
        description="With `explain`: entropy of the distribution of the next token before the word, which the first of "
        "its tokens is drawn from, in nats. Tokens that continue the word before are part of that distribution.",
    )


class ScoreResult(Record):
    """Log-probability (base e) of a text and its end, and the perplexity per token.

    Most sentences end with punctuation: compare texts that end alike. A model of subwords scores the text without an
    end.

    Both are `null` where a token has probability 0, which a sparse-softmax gives all words but the best: JSON has no
    infinity.
    """

    text: str
    """The text as it was sent."""
    log_probability: Finite
    """Sum of the log-probabilities of the tokens; `null` where it is minus infinity."""
    perplexity: Finite
    """Perplexity per scored token; `null` where it is infinite, or no token is scored."""
    bits_per_byte: Finite = Field(
        default=None,
        exclude_if=_is_none,
        description="Of a model of subwords: the negative log-probability, base 2, divided by the UTF-8 bytes of the "
        "text from the first scored token to the last.",
    )
    tokens: tuple[Token, ...]
    """The words of the text and the sentence end, in order; of a model of subwords the tokens of the text."""
    truncated: Truncated = Field(default=None, exclude_if=_is_none)  # other nulls are shown
    words: list[TokenizedWord] | None = Field(
        default=None, exclude_if=_is_none, description="The words of the text, of a model of subwords with unit `word`."
    )


class ExplainedScore(ScoreResult):
    """A score with the distribution that each word is drawn from."""

    tokens: tuple[ExplainedToken, ...]
    """The words of the text and the sentence end, in order; of a model of subwords the tokens of the text."""


class PredictsWords(Protocol):
    """A model that offers `next-word` and `score`. Its queries raise `QueryError` and `TextTooLongError`."""

    @property
    def most_words(self) -> int:
        """Largest number of words or tokens of a result."""
        ...

    def next_words_query(
        self,
        context: str,
        top_k: int = ...,
        *,
        truncate: bool = ...,
        unit: Unit | None = ...,
        coverage: float | None = ...,
        randomized: bool = ...,
    ) -> Query:
        """Check and tokenize one context."""
        ...

    def score_query(
        self,
        text: str,
        *,
        explain: int = ...,
        truncate: bool = ...,
        unit: Unit | None = ...,
        stride: int | None = ...,
        max_windows: int | None = ...,
        lines: bool = ...,
    ) -> Query:
        """Check and tokenize one text, to score with so many alternatives to each token."""
        ...

    def score_token_query(self, ids: Sequence[int]) -> Query:
        """Check a text that is given as token ids."""
        ...


def _next_word_record(result: Any, params: NextWordParams) -> NextWordResult:
    record = NextWordResult.of(result)
    if not params.explain or len(result.components) <= 1:
        record.components = None
    return record


def _score_record(result: Any, params: ScoreParams) -> ScoreResult:
    return ExplainedScore.of(result) if params.explain else ScoreResult.of(result)


def _score_cells(result: Any) -> tuple[object, ...]:
    """Return the columns of a score, with the bits per byte of a model of subwords."""
    bits = getattr(result, "bits_per_byte", None)
    return result.log_probability, result.perplexity, *(() if bits is None else (bits,)), result.text


def _score_rows(result: Any) -> Sequence[Sequence[Scalar]]:
    """Return a row for each word of a score where it has words, else for each token."""
    rows: list[Sequence[Scalar]] = []
    for each in getattr(result, "words", None) or result.tokens:
        value = each.log_probability
        surprisal = None if value is None else -value / math.log(2)
        place = getattr(each, "start", None), getattr(each, "end", None), getattr(each, "token_count", 1)
        rows.append((each.word, *place, value, surprisal, getattr(each, "rank", None), each.entropy))
    return rows


def _number(log_probability: float | None) -> float:
    """Return not a number for a token that is not scored: tensors have no null."""
    return math.nan if log_probability is None else log_probability


NEXT_WORD = Operation[PredictsWords, str, NextWordParams, Any](
    name="next-word",
    summary="Return the most probable next words after each context.",
    about="Contexts to continue.",
    query=lambda model, context, params, _: model.next_words_query(
        context,
        params.top_k,
        truncate=params.truncate,
        unit=params.unit,
        coverage=params.coverage,
        randomized=params.randomized,
    ),
    params=NextWordParams,
    repeatable=always,
    record=NextWordResult,
    compare=compare_words,
    recorded=_next_word_record,
    input="context",
    describes_input="A text to continue, or a list of texts.",
    result_items=lambda model, params: min(
        params.top_k if params.coverage is None else MOST_SET_WORDS, model.most_words
    ),
    computed_by=lambda params: "next-token" if params.unit == "token" else "next-word",
    omits_null=True,
    command_defaults={"top_k": 5},
    cells=lambda result: (", ".join(f"{each.word} {each.probability:.3f}" for each in result.words), result.context),
    outputs=(
        Output(name="word", kind="text", several=True, values=lambda _, found: [each.word for each in found.words]),
        Output(
            name="probability",
            kind="number",
            several=True,
            values=lambda _, found: [each.probability for each in found.words],
        ),
        Output(name="entropy", kind="number", values=lambda _, found: found.entropy),
    ),
    examples=({"context": "we had a very", "top_k": 5}, {"context": ["we had a", "I am"], "explain": True}),
)
SCORE = Operation[PredictsWords, str, ScoreParams, Any](
    name="score",
    summary="Return the log-probability and perplexity of each text, word by word.",
    about="Sentences to score.",
    query=lambda model, text, params, most: model.score_query(
        text,
        explain=params.alternatives,
        truncate=params.truncate,
        unit=params.unit,
        stride=params.stride,
        max_windows=most,
        lines=params.lines,
    ),
    params=ScoreParams,
    repeatable=always,
    record=ScoreResult,
    compare=compare_scores,
    recorded=_score_record,
    records=(ScoreResult, ExplainedScore),
    describes_input="A sentence, or a list of sentences.",
    computed_by=lambda params: "explain" if params.explain else "score",
    cells=_score_cells,
    table=Table(
        columns=("word", "start", "end", "token_count", "log_probability", "surprisal", "rank", "entropy"),
        rows=_score_rows,
    ),
    outputs=(
        Output(name="log_probability", kind="number", values=lambda _, result: result.log_probability),
        Output(name="perplexity", kind="number", values=lambda _, result: result.perplexity),
    ),
    tokens=TokenForm[PredictsWords, Params, Any](
        query=lambda model, ids, _: model.score_token_query(ids),
        params=Params,
        outputs=(
            Output(
                name="log_probabilities",
                kind="number",
                several=True,
                values=lambda _, result: [_number(each.log_probability) for each in result.tokens],
            ),
        ),
    ),
    examples=(
        {"text": ["books can be outdated", "he goed home"]},
        {"text": "we had a very good time", "explain": True, "top_k": 3},
    ),
)
