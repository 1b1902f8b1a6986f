"""Translation: texts in one language in, n-best translations out.

A text is cut into sentences within its lines, which are translated independently of each other and of the other
sentences of a batch, and joined again with what stood between them. A translation that is likely to be poor is said to
be. All log-probabilities are base e.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.backend import Backend
from models.bundle.contract import Contract, FileName, PositiveInt
from models.bundle.manifest import AnyManifest, BundleManifest
from models.decoding.alignment import aligned_words, word_weights
from models.decoding.beam_search import Hypothesis, SearchOptions
from models.decoding.constraints import Constraints
from models.decoding.sequence_to_sequence import BATCH_SOURCES, SourceSequence, checked_options
from models.errors import BundleError, QueryError, TextTooLongError, TooManyPartsError
from models.operations.comparison import compare_texts
from models.operations.operation import BetweenLanguages, InDocuments, Operation, Output, always
from models.operations.translation import TranslateParams, TranslateResult
from models.tasks.prediction_sets import Coverage
from models.tasks.registry import register
from models.tasks.sequence_model import SequenceConfig, SequenceModel, SequenceNetwork
from models.tasks.translation_confidence import Confidence, SignalName, signals
from models.tasks.translation_glossary import TargetTokens
from models.tasks.translation_pivot import FirstSentence, FirstStep, demanding, joined, with_places
from models.tasks.translation_results import (
    GlossaryUse,
    Link,
    Translated,
    TranslatedSentence,
    TranslatedWord,
    Translation,
)
from models.tasks.translation_sets import TranslationPredictor, TranslationSets
from models.text.capitals import is_in_capitals
from models.text.config import check_tokenizer, load_tokenizer
from models.text.glossary import Glossary, Term
from models.text.language import Detection, LanguageDetector, chosen_language, load_identifier
from models.text.language_codes import find_language, two_letters
from models.text.limits import Keep, TextLimit, checked_text, head, several
from models.text.literals import Literals
from models.text.markup import PLAIN, Aligned, Document, Markup, filled, seems_to_have_branches
from models.text.numbers import Convention, convention
from models.text.protection import DEFAULT_PROTECTION, Protection, translated_part
from models.text.segments import Segmenter, Segments, printable
from models.text.sentence_pieces import SentencePieceTokenizer
from models.text.stand_ins import Edit, StandIns, moved_by
from models.text.tokenization import SubwordTokenizer
from models.text.words import Span, has_word, moved, positions_in, words_of

__all__ = [
    "AlignmentHeads",
    "ConfidenceThreshold",
    "GlossaryUse",
    "Languages",
    "Link",
    "MarkupQuery",
    "SecondQuery",
    "SentencePieces",
    "TransformerNetwork",
    "Translated",
    "TranslatedSentence",
    "TranslatedWord",
    "Translation",
    "TranslationConfig",
    "TranslationQuery",
    "Translator",
]

_TOKENIZED_TOGETHER = 64
"""Sentences in one call of the tokenizer, whose encodings take some 400 bytes a token meanwhile."""
_LOOKED_AT = 8000
"""Characters of a sentence whose literals are looked at."""
_PLAIN_CODE = 3
"""Characters of a code without a script or region."""
_CHARACTERS_PER_ITEM = 8
"""Characters that are copied which count as one token of a result."""

_CONSTRAINED_BEAM = 4
"""Least number of hypotheses of a sentence with terms of a glossary: some with and some without each term."""

_ITEMS_PER_LINKED_TOKEN, _ITEMS_PER_RATED_TOKEN = 3, 3
"""Tokens of a result that the links and the confidence of a token count as."""


class TransformerNetwork(SequenceNetwork):
    """The sizes of an encoder-decoder Transformer."""

    kind: Literal["transformer"]
    """Kind of network."""
    encoder_layers: PositiveInt
    """Layers that read the source."""
    decoder_layers: PositiveInt
    """Layers that write the target."""
    norm: Literal["pre", "post"]
    """Position of layer normalization: before or after each sublayer."""
    activation: Literal["relu", "gelu", "silu", "gated-relu", "gated-gelu", "gated-silu"] = "relu"
    """The function between the two layers of the feed-forward networks, which may be multiplied with a gate."""
    positions: PositiveInt = 1024
    """Tokens that a sentence may have on either side, its end included."""


LanguageCode = Annotated[str, Field(pattern=r"^[a-z]{2,3}([_-][A-Za-z]{2,8})?$")]
"""An ISO 639 code, with a script or region where a language has several, such as `srp_Cyrl`."""


class Languages(Contract):
    """The source and target language, as ISO 639-1 or 639-3 codes, and those that a model with several has."""

    source: LanguageCode
    """Source language, where there are several that of texts whose language is not detected."""
    target: LanguageCode
    """Target language, by default where there are several."""
    targets: dict[LanguageCode, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """The token that names each target language, for a model that has such tokens."""
    targets_begin_outputs: bool = False
    """Whether the token of `targets` is the first of each output, instead of the first before each sentence."""
    sources: dict[LanguageCode, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """The token before each sentence that names its language, for a model that reads several."""
    prompts: dict[LanguageCode, tuple[Annotated[int, Field(ge=0)], ...]] = Field(default_factory=dict)
    """The tokens before each sentence that ask for a target language in words, for a model that is asked so."""

    @model_validator(mode="after")
    def _defaults_are_known(self) -> Self:
        if self.targets and self.prompts:
            raise ValueError("a model has targets or prompts, not both")
        for name, code, known in (
            ("target", self.target, self.targets or self.prompts),
            ("source", self.source, self.sources),
        ):
            if known and code not in known:
                raise ValueError(f"{name} {code!r} is none of {name}s: {', '.join(known)}")
        return self

    def tokens(self) -> frozenset[int]:
        """Return all tokens that name languages, or ask for them."""
        asked = (token for tokens in self.prompts.values() for token in tokens)
        return frozenset({*self.targets.values(), *self.sources.values(), *asked})

    def known_targets(self) -> tuple[str, ...]:
        """Return the codes of the target languages."""
        return tuple(self.targets) or tuple(self.prompts) or (self.target,)

    def known_sources(self) -> tuple[str, ...]:
        """Return the codes of the source languages."""
        return tuple(self.sources) or (self.source,)

    def chosen_target(self, code: str | None) -> str:
        """Return a target language as the model names it; raises `QueryError` for one that it does not write."""
        return self.target if code is None else _found(code, self.known_targets(), "target_language")

    def chosen_source(self, code: str) -> str:
        """Return a source language as the model names it; raises `QueryError` for one that it does not read."""
        return _found(code, self.known_sources(), "source_language")

    def prefix(self, target: str | None, source: str | None = None) -> tuple[int, ...]:
        """Return the tokens before each sentence; raises `QueryError` for a language that the model does not have."""
        chosen = self.chosen_target(target)
        read = self.source if source is None else self.chosen_source(source)
        named = (self.sources[read],) if self.sources else ()
        asked = (self.targets[chosen],) if self.targets and not self.targets_begin_outputs else ()
        return (*named, *asked, *self.prompts.get(chosen, ()))

    def forced(self, target: str | None) -> tuple[int, ...]:
        """Return the tokens that each output begins with; raises `QueryError` as `prefix`."""
        chosen = self.chosen_target(target)
        return (self.targets[chosen],) if self.targets and self.targets_begin_outputs else ()

    @property
    def longest_prefix(self) -> int:
        """Return the largest number of tokens before a sentence."""
        return max(len(self.prefix(code)) for code in self.known_targets())


_LISTED = 20
"""Languages that a message lists."""


def _found(code: str, known: Sequence[str], name: str) -> str:
    if (found := code if code in known else find_language(code, known)) is None:
        more = f" and {len(known) - _LISTED} others" if len(known) > _LISTED else ""
        raise QueryError(f"{name} must be one of {', '.join(known[:_LISTED])}{more}, not {code!r}")
    return found


class SentencePieces(Contract):
    """The files of a SentencePiece vocabulary, besides `tokenizer`, which encodes the source."""

    characters: FileName
    """JSON file of the replacements of characters before tokenization."""
    vocab_size: PositiveInt
    """Tokens of the source."""
    target: FileName | None = None
    """Tokenizer file of the target, where its vocabulary is not that of the source."""


class ConfidenceThreshold(Contract):
    """The log-probability below which a translation is likely to be poor, for a model without `confidence`."""

    log_probability: float
    """Least mean log-probability of a token, the end included, of a sentence's best translation."""
    poor_chrf: float
    """chrF to the reference, 0 to 100, below which a translation counted as poor."""
    precision: Annotated[float, Field(ge=0, le=1)]
    """Fraction of the sentences below the threshold whose translation was poor."""
    recall: Annotated[float, Field(ge=0, le=1)]
    """Fraction of the poor translations that were below the threshold."""


class AlignmentHeads(Contract):
    """The heads of cross-attention whose mean is the output `attention` of the graph `step`.

    They were chosen on sentences of which some links are known.
    """

    heads: Annotated[tuple[tuple[int, int], ...], Field(min_length=1)]
    """Layer and number of each head, from 0 on."""
    offset: Literal[0, 1]
    """1 where the attention of the step that reads a token is that token's, 0 where that of the step that writes it."""
    accuracy: Annotated[float, Field(ge=0, le=1)]
    """Fraction of the words with known links that are linked with the right word."""
    words: PositiveInt
    """Words with known links, by which the heads were chosen."""


class TranslationConfig(SequenceConfig):
    """The section of a translation model."""

    network: TransformerNetwork
    languages: Languages
    confidence: Confidence | None = None
    low_confidence: ConfidenceThreshold | None = None
    sets: TranslationSets | None = None
    """Calibration examples, by which sets of translations with any coverage are made."""
    alignment: AlignmentHeads | None = None
    """Set where the graph `step` has the output `attention`."""
    sentence_pieces: SentencePieces | None = None
    """Set where the tokenizer is a SentencePiece vocabulary instead of byte-pair encoding."""

    @model_validator(mode="after")
    def _sentences_fit_the_network(self) -> Self:
        if self.limits.max_tokens + self.languages.longest_prefix >= self.network.positions:
            raise ValueError(f"limits.max_tokens must be below network.positions, which is {self.network.positions}")
        return self

    @model_validator(mode="after")
    def _sets_have_confidences(self) -> Self:
        if self.sets is not None and self.confidence is None:
            raise ValueError("sets are made by the confidence in translations: confidence is missing")
        return self

    @model_validator(mode="after")
    def _tokens_are_in_the_vocabulary(self) -> Self:
        source = self.vocab_size if self.sentence_pieces is None else self.sentence_pieces.vocab_size
        tokens = self.special_tokens
        if max(tokens.unknown, tokens.end, *self.languages.tokens()) >= source:
            raise ValueError(f"special_tokens and tokens of languages must be below the {source} tokens of the source")
        forced = [token for code in self.languages.known_targets() for token in self.languages.forced(code)]
        if max(tokens.end, tokens.start or 0, *forced) >= self.vocab_size:
            raise ValueError(f"special_tokens must be below vocab_size, which is {self.vocab_size}")
        return self

    def files(self) -> frozenset[str]:
        pieces = self.sentence_pieces
        more = () if pieces is None else (pieces.characters, *([pieces.target] if pieces.target else []))
        sets = () if self.sets is None else (self.sets.file,)
        return super().files().union(more, sets)

    def summary(self) -> Mapping[str, object]:
        threshold = self.low_confidence if self.confidence is None else None
        languages: dict[str, object] = {"source": self.languages.source, "target": self.languages.target}
        if self.languages.targets or self.languages.prompts:
            languages["targets"] = list(self.languages.known_targets())
        if self.languages.sources:
            languages["sources"] = list(self.languages.sources)
        return {
            **super().summary(),
            "languages": languages,
            "confidence": None
            if self.confidence is None
            else self.confidence.model_dump(exclude={"signals", "intercept"}),
            "low_confidence": None if threshold is None else threshold.model_dump(),
            "calibration_examples": None if self.sets is None else self.sets.examples,
            "alignment": self.alignment is not None,
        }

    def description(self) -> Mapping[str, str]:
        known = (", ".join(codes) for codes in (self.languages.known_sources(), self.languages.known_targets()))
        lines = {"languages": " to ".join(known), **super().description()}
        return lines if self.sets is None else {**lines, "sets of translations": self.sets.described()}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence that is translated."""

    tokens: tuple[int, ...]
    """Token ids without the end token."""
    literals: Literals
    """What of it a translation must keep."""
    foreign_letters: frozenset[str] = frozenset()
    """Its letters of another script, such as names of variables, which a translation must keep too."""
    stand_ins: StandIns | None = None
    """What the model reads in place of its protected parts."""
    enclosed: tuple[str, ...] = ()
    """Numbers and names within a tag: hypotheses that have them go before others."""
    prefix: int = 0
    """Tokens before it that name or ask for languages."""
    terms: tuple[Term, ...] = ()
    """The terms of a glossary that it has, at their places in what the model reads."""
    constraints: Constraints | None = None
    """What its translation must have for the terms."""

    @property
    def chooses(self) -> bool:
        """Whether the first hypothesis of the beam is not always the best."""
        return bool(self.literals or self.enclosed)


@dataclass(frozen=True, slots=True)
class TranslationQuery:
    """A checked and tokenized text."""

    text: str
    segments: Segments
    """The text's sentences and the copied pieces between them."""
    sentences: tuple[Sentence, ...]
    """The sentences, tokenized."""
    beam_size: int
    options: SearchOptions
    max_target: int
    """No translation of a sentence has more tokens."""
    detected_language: str | None
    """The text's language where it is not the model's."""
    language_probability: float
    """Probability that the text is in the language that it is read as."""
    truncated: int | None = None
    """Tokens of sentences that were left out."""
    attends: bool = False
    """Whether the model's hypotheses can come with their attention."""
    confidences: bool = False
    """Whether translations come with the confidence in their sentences and words."""
    copied: tuple[str, ...] | None = None
    """What stands between the translations, where it is not what stands between the sentences."""
    source_language: str | None = None
    """Code of the language that the text is read as; None of a model that reads one."""
    has_glossary: bool = False
    """Whether translations come with the terms of a glossary that the text has."""
    coverage: Coverage | None = None
    """The coverage of a set in place of the n best translations."""

    @property
    def target_segments(self) -> Segments:
        """The segments as they are in a translation, but for the sentences."""
        return self.segments if self.copied is None else replace(self.segments, copied=self.copied)

    @property
    def result_items(self) -> int:
        """Largest number of tokens of all translations; what each of them copies counts too."""
        copied = sum(map(len, self.segments.copied))
        tokens = sum(part.max_tokens for part in self.parts())
        tokens *= 1 + self.options.attention * _ITEMS_PER_LINKED_TOKEN + self.confidences * _ITEMS_PER_RATED_TOKEN
        return self.options.n_best * (tokens + copied // _CHARACTERS_PER_ITEM)

    def parts(self) -> list[SourceSequence]:
        """Return the sources to decode, one for each sentence.

        Of a sentence with literals or names in tags, the whole beam is returned for `Translator.result` to choose from,
        and of one with stand-ins also the attention, by which a part is placed that was lost. A sentence with terms of
        a glossary has a beam of some hypotheses.
        """
        return [
            SourceSequence(
                each.tokens,
                self.beam_size if each.constraints is None else max(self.beam_size, _CONSTRAINED_BEAM),
                self._options(each),
                self.most_tokens(each),
            )
            for each in self.sentences
        ]

    def most_tokens(self, sentence: Sentence) -> int:
        """Return the largest number of tokens of a sentence's translation."""
        return min(2 * len(sentence.tokens) + 10, self.max_target)

    def _options(self, sentence: Sentence) -> SearchOptions:
        options = self.options
        if sentence.chooses and options.temperature is None and options.n_best != self.beam_size:
            options = replace(options, n_best=self.beam_size)
        if sentence.constraints is not None:
            options = replace(options, constraints=sentence.constraints)
        if sentence.stand_ins is not None and sentence.stand_ins.edits and self.attends and not options.attention:
            return replace(options, attention=True)
        return options


@dataclass(frozen=True, slots=True)
class MarkupQuery:
    """A checked and tokenized text with markup: a query of each of its blocks."""

    text: str
    document: Document
    blocks: tuple[TranslationQuery, ...]
    """A query of each block of the document."""
    detected_language: str | None
    """The language of the text without its markup, where it is not the model's."""
    source_language: str | None = None
    """See `TranslationQuery`."""
    markup: Markup = PLAIN
    """The format of the text."""

    @property
    def result_items(self) -> int:
        """Largest number of tokens of all translations; what each of them copies counts too."""
        n_best = max((each.options.n_best for each in self.blocks), default=1)
        copied = n_best * (len(self.text) // _CHARACTERS_PER_ITEM)
        return copied + sum(each.result_items for each in self.blocks)

    def parts(self) -> list[SourceSequence]:
        """Return the sources to decode, one for each sentence of each block."""
        return [part for each in self.blocks for part in each.parts()]


@dataclass(frozen=True, slots=True)
class SecondQuery:
    """A text in a third language that is translated on: a query of each sentence, or of the whole text."""

    first: FirstStep
    queries: tuple[TranslationQuery | MarkupQuery, ...]

    @property
    def result_items(self) -> int:
        """Largest number of tokens of all translations; what each of them copies counts too."""
        copied = len(self.first.text) // _CHARACTERS_PER_ITEM
        return copied + sum(each.result_items for each in self.queries)

    def parts(self) -> list[SourceSequence]:
        """Return the sources to decode, those of each query."""
        return [part for each in self.queries for part in each.parts()]


AnyQuery = TranslationQuery | MarkupQuery


TRANSLATE = Operation["Translator", str, TranslateParams, Translation](
    name="translate",
    summary="Translate each text. Its sentences are translated independently of each other and of other requests.",
    about="Texts to translate, sentence by sentence, within lines. Segments without words to translate are copied.",
    query=lambda model, text, params, most_sentences: model.query(
        text,
        params.beam_size,
        options=params.options(),
        truncate=params.truncate,
        max_sentences=most_sentences,
        source_language=params.source_language,
        target_language=params.target_language,
        alignment=params.alignment,
        confidences=params.confidences,
        protection=params.protection(),
        markup=params.markup(),
        glossary=params.terms,
        coverage=params.coverage,
    ),
    slowly_prepared=lambda params: bool(params.protect) or bool(params.glossary) or params.format != "text",
    params=TranslateParams,
    repeatable=always,
    record=TranslateResult,
    compare=compare_texts("translations"),
    omits_null=True,
    cells=lambda result: (result.translations[0].text,),
    outputs=(
        Output(name="translation", kind="text", values=lambda _, result: result.translations[0].text),
        Output(name="score", kind="number", values=lambda _, result: result.translations[0].score),
        Output(name="low_confidence", kind="flag", values=lambda _, result: result.low_confidence),
    ),
    in_documents=InDocuments(
        query=lambda model, segment, params, most_sentences: model.query(
            segment.text,
            params.beam_size,
            options=replace(params.options(), n_best=1),
            truncate=params.truncate,
            max_sentences=most_sentences,
            source_language=params.source_language,
            target_language=params.target_language,
            join_lines=segment.join_lines,
            protection=params.protection(),
            markup=segment.markup,
            glossary=params.terms,
        ),
        text=lambda result: result.translations[0].text,
        target_language=lambda model, params: params.target_language or model.config.languages.target,
        reading=lambda params: params.reading(),
        doubtful=lambda result: result.low_confidence,
    ),
    between_languages=BetweenLanguages(
        sources=lambda model: _default_first(model.config.languages.source, model.config.languages.known_sources()),
        targets=lambda model: _default_first(model.config.languages.target, model.config.languages.known_targets()),
        asked=lambda params: (params.source_language, params.target_language),
        chosen=lambda params, source, target: params.changed(source_language=source, target_language=target),
        plain=lambda params, text: params.markup().plain(text),
        first_params=lambda params: params.changed(
            n_best=1,
            temperature=None,
            sparse=False,
            alignment=False,
            confidences=False,
            glossary=None,
            coverage=None,
        ),
        first_query=lambda model, query, params: model.first_query(query, params),
        first=lambda model, query, outputs, params: model.first_step(query, outputs, params),
        second_query=lambda model, first, params, most_sentences: model.second_query(first, params, most_sentences),
    ),
    examples=(
        {"text": "Guten Morgen!"},
        {"text": ["Wo ist der Bahnhof?", "Ich habe Hunger."], "beam_size": 4, "n_best": 2},
    ),
)


def _default_first(default: str, codes: Sequence[str]) -> tuple[str, ...]:
    return default, *(code for code in codes if code != default)


@register("translation")
class Translator(SequenceModel[TranslationConfig, SubwordTokenizer | SentencePieceTokenizer]):
    """A loaded translation bundle. Safe to call from several threads.

    `translate` does a whole job; a server makes queries of texts (`query`), decodes their sentences continuously
    (`start_decoding`), and joins the hypotheses (`result`).
    """

    config_type = TranslationConfig
    tokenizer_type = SubwordTokenizer
    operations = (TRANSLATE,)

    def __init__(
        self,
        manifest: BundleManifest[TranslationConfig],
        tokenizer: SubwordTokenizer | SentencePieceTokenizer,
        backend: Backend,
        target_tokenizer: SentencePieceTokenizer | None = None,
        sets: TranslationPredictor | None = None,
    ) -> None:
        """`target_tokenizer` is that of the target where it has a vocabulary of its own."""
        super().__init__(manifest, tokenizer, backend)
        self._sets = sets
        self._target_tokenizer = target_tokenizer or tokenizer
        self._target_tokens = TargetTokens(self._target_tokenizer, self.config.vocab_size)
        limit = self.config.limits.max_tokens
        self._limit = TextLimit(limit, noun=" in a sentence")
        self._max_target = min(2 * limit, self.config.network.positions)
        self._detectors: dict[str, LanguageDetector] = {}
        self._segmenters: dict[str, Segmenter] = {}
        self._detector(self.config.languages.source)
        self._forced = len(self.config.languages.forced(None))
        self._source_codes = {two_letters(code): code for code in reversed(self.config.languages.known_sources())}

    @classmethod
    def from_bundle(cls, path: Path, manifest: AnyManifest, backend: Backend) -> Self:
        config: TranslationConfig = manifest.config
        pieces = config.sentence_pieces
        sets = None if config.sets is None else TranslationPredictor.read(path, config.sets)
        if pieces is None:
            return cls(manifest, load_tokenizer(cls.tokenizer_type, path, config), backend, sets=sets)
        source, target = pieces.vocab_size, config.vocab_size
        if pieces.target is None and source != target:
            raise BundleError(str(path), ["config.sentence_pieces.vocab_size is not vocab_size, but has no target"])
        try:
            read = SentencePieceTokenizer.from_files
            tokenizers = [read(path / config.tokenizer, path / pieces.characters, source)]
            if pieces.target is not None:
                tokenizers.append(read(path / pieces.target, path / pieces.characters, target))
        except ValueError as error:
            raise BundleError(str(path), [str(error)]) from error
        check_tokenizer(path, config.tokenizer, tokenizers[0], source, config.special_tokens)
        return cls(manifest, tokenizers[0], backend, tokenizers[-1], sets)

    @classmethod
    def load_shared(cls) -> None:
        load_identifier()

    def translate(
        self,
        texts: Sequence[str],
        beam_size: int = 5,
        *,
        options: SearchOptions | None = None,
        truncate: bool = False,
        batch_sentences: int = BATCH_SOURCES,
        source_language: str | None = None,
        target_language: str | None = None,
        join_lines: bool = False,
        split_sentences: bool = True,
        alignment: bool = False,
        confidences: bool = False,
        protection: Protection = DEFAULT_PROTECTION,
        markup: Markup = PLAIN,
        glossary: Glossary | None = None,
        coverage: float | None = None,
    ) -> list[Translation]:
        """Translate each text; `beam_size` 1 is greedy search.

        `truncate` keeps the first tokens of too long a sentence. `target_language` is one of those of a model with
        several, its default otherwise; `source_language` the one of a text, which is detected otherwise. With
        `join_lines`, sentences may go on in the next line, and line breaks within them become spaces; without
        `split_sentences` a text, or a block of one with markup, is a single sentence. With `alignment`, translations
        have links between words, with `confidences` the confidence in each sentence and word. Each translation has the
        parts of `protection` byte for byte and exactly once, but for numbers that are localized.
        `markup` says in which format the texts are; their translations have it too, with the tags of the text. A
        sentence with terms of the `glossary` is translated by what that says, with at least 4 hypotheses; translations
        say which terms they use. With a `coverage`, a text of one sentence has the smallest set of translations that
        holds an acceptable one with this probability, in place of the `n_best`.

        Raises `QueryError` for options out of range, for samples or a sparse mask with a glossary, for an alignment by
        a model without `alignment` in its manifest, for alignment, confidences or coverage of a text with markup, for a
        coverage that is out of reach, of another search than that of the calibration examples or of a text of several
        sentences, and for markup that cannot be read, and its `TextTooLongError`.
        """
        queries = [
            self.query(
                text,
                beam_size,
                options=options,
                truncate=truncate,
                source_language=source_language,
                target_language=target_language,
                join_lines=join_lines,
                split_sentences=split_sentences,
                alignment=alignment,
                confidences=confidences,
                protection=protection,
                markup=markup,
                glossary=glossary,
                coverage=coverage,
            )
            for text in several(texts)
        ]
        found = iter(self.decoder.search([part for query in queries for part in query.parts()], batch_sentences))
        return [self.result(query, [next(found) for _ in query.parts()]) for query in queries]

    def query(
        self,
        text: str,
        beam_size: int = 5,
        *,
        options: SearchOptions | None = None,
        truncate: bool = False,
        max_sentences: int | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
        join_lines: bool = False,
        split_sentences: bool = True,
        alignment: bool = False,
        confidences: bool = False,
        protection: Protection = DEFAULT_PROTECTION,
        markup: Markup = PLAIN,
        glossary: Glossary | None = None,
        coverage: float | None = None,
        marks: Sequence[Span] = (),
    ) -> AnyQuery:
        """Check and tokenize one text; see `translate`. `marks` are characters of a plain text that are protected too.

        Raises `TooManyPartsError` where the text has more than `max_sentences`, of a text with markup in the first
        block that goes beyond, before any of it is tokenized.
        """
        if alignment and self.config.alignment is None:
            raise QueryError(f"alignment: the model {self._full_name} has none")
        languages, options = self.config.languages, checked_options(beam_size, options)
        if glossary is not None and (options.temperature is not None or options.sparse):
            name = "sparse" if options.temperature is None else "temperature"
            raise QueryError(f"glossary: terms cannot be demanded of translations with {name}")
        chosen = None
        if coverage is not None:
            chosen = self._coverage(coverage, beam_size, options, target_language, glossary)
            options = replace(options, n_best=beam_size)
        forced = (*languages.forced(target_language), *options.prefix)
        options = replace(options, attention=options.attention or alignment, prefix=forced)
        text = checked_text(text)
        document = None if markup.format == "text" else markup.document(text, places_tags=self._places_tags)
        shown = text if document is None else "\n".join(block.text for block in document.blocks)
        source, detection = self._source(shown, source_language)
        read = partial(
            self._plain_query,
            source=source,
            beam_size=beam_size,
            options=options,
            prefix=languages.prefix(target_language, source),
            language_probability=detection.probability,
            truncate=truncate,
            protection=protection,
            conventions=self._conventions(source, target_language) if protection.numbers == "localize" else None,
            glossary=glossary,
            split_sentences=split_sentences,
        )
        shown_source = source if languages.sources else None
        if document is None:
            found = read(text, max_sentences=max_sentences, join_lines=join_lines, marks=marks)
            if chosen is not None and len(found.sentences) > 1:
                raise QueryError(
                    f"coverage: a set is of the translations of one sentence, and the text has {len(found.sentences)}"
                )
            return replace(
                found,
                detected_language=detection.other,
                confidences=confidences,
                source_language=shown_source,
                coverage=chosen,
            )
        wanted = {"alignment": alignment, "confidences": confidences, "coverage": chosen is not None}
        if given := [name for name, value in wanted.items() if value]:
            raise QueryError(f"{given[0]}: there is none of texts with markup")
        return replace(
            self._markup_query(text, document, read, max_sentences),
            detected_language=detection.other,
            source_language=shown_source,
            markup=markup,
        )

    def _coverage(
        self,
        level: float,
        beam_size: int,
        options: SearchOptions,
        target_language: str | None,
        glossary: Glossary | None,
    ) -> Coverage:
        """Return a chosen coverage; raises `QueryError` for one that the calibration examples cannot give."""
        if self._sets is None:
            raise QueryError(
                f"the model {self._full_name} has no calibration examples of translations, so that no coverage can be "
                "chosen"
            )
        languages = self.config.languages
        if languages.chosen_target(target_language) != languages.target:
            raise QueryError(f"coverage: the calibration examples are of translations into {languages.target}")
        if glossary is not None:
            raise QueryError("coverage: there is none of translations by a glossary")
        return self._sets.coverage(level, beam_size, options)

    def _source(self, text: str, code: str | None) -> tuple[str, Detection]:
        """Return the language that a text is read as, and the language that it has.

        Without a code it is the most probable one of those that the model reads.
        """
        languages = self.config.languages
        if code is not None:
            chosen = languages.chosen_source(code)
            return chosen, self._detector(chosen).detect(text)
        if len(self._source_codes) == 1:
            return languages.source, self._detector(languages.source).detect(text)
        found = chosen_language(text, self._source_codes)
        return languages.source if found.expected is None else self._source_codes[found.expected], found

    def _detector(self, source: str) -> LanguageDetector:
        if source not in self._detectors:
            self._detectors[source] = LanguageDetector(two_letters(source))
        return self._detectors[source]

    def _segmenter(self, source: str) -> Segmenter:
        if source not in self._segmenters:
            self._segmenters[source] = Segmenter(source if len(source) <= _PLAIN_CODE else two_letters(source))
        return self._segmenters[source]

    def _conventions(self, source_language: str, target: str | None) -> tuple[Convention, Convention]:
        """Return how both languages write numbers; raises `QueryError` where that is not known."""
        codes = (source_language, self.config.languages.chosen_target(target))
        source, written = (convention(code) or convention(two_letters(code)) for code in codes)
        if source is None or written is None:
            unknown = codes[0] if source is None else codes[1]
            raise QueryError(f"numbers: how the language {unknown!r} writes numbers is not known")
        return source, written

    @property
    def _places_tags(self) -> bool:
        return self.decoder.attends and self.config.alignment is not None

    def _markup_query(
        self, text: str, document: Document, read: Callable[..., TranslationQuery], max_sentences: int | None
    ) -> MarkupQuery:
        queries: list[TranslationQuery] = []
        count = 0
        for block in document.blocks:
            try:
                query = read(
                    block.text,
                    max_sentences=None if max_sentences is None else max_sentences - count,
                    marks=block.protected,
                )
            except TooManyPartsError as error:
                assert max_sentences is not None
                raise TooManyPartsError(count + error.length, max_sentences, "sentences") from None
            if block.needs_links:
                sentences = tuple(
                    _enclosing(*each, block.enclosed)
                    for each in zip(query.segments.cores, query.sentences, strict=True)
                )
                query = replace(query, sentences=sentences, options=replace(query.options, attention=True))
            count += len(query.sentences)
            queries.append(query)
        return MarkupQuery(text, document, tuple(queries), None)

    def _plain_query(
        self,
        text: str,
        *,
        source: str,
        beam_size: int,
        options: SearchOptions,
        prefix: tuple[int, ...],
        language_probability: float,
        truncate: bool,
        protection: Protection,
        conventions: tuple[Convention, Convention] | None,
        glossary: Glossary | None,
        split_sentences: bool,
        max_sentences: int | None,
        join_lines: bool = False,
        marks: Sequence[Span] = (),
    ) -> TranslationQuery:
        """Return the query of a text without markup, its language not looked at; `marks` are protected too."""
        most = math.inf if max_sentences is None else max_sentences
        segmenter, protected = self._segmenter(source), protection.of(text, marks)
        marked = text if protected is None else protected.text
        segments = segmenter.segments(marked, join_lines=join_lines, max_cores=most, split=split_sentences)
        if max_sentences is not None and len(segments.cores) > max_sentences:
            raise TooManyPartsError(len(segments.cores), max_sentences, "sentences")
        if protected is not None:
            segments = segmenter.narrowed(segments, lambda core: translated_part(core, protected))
        targets = None if protected is None else protected.target_parts(conventions)
        stand_ins = None
        capitals = is_in_capitals(" ".join(segments.cores))
        if capitals or protected is not None or any(map(is_in_capitals, segments.cores)):
            parts = {} if protected is None else protected.parts
            stand_ins = [
                StandIns.of(core, parts, targets, capitals=capitals or is_in_capitals(core)) for core in segments.cores
            ]
        read = segments.cores if stand_ins is None else [each.text for each in stand_ins]
        tokens: list[list[int]] = []
        left_out = 0
        for first in range(0, len(read), _TOKENIZED_TOGETHER):
            group = read[first : first + _TOKENIZED_TOGETHER]
            for ids, beyond in self._tokenize(group, head if truncate else None, segmenter):
                tokens.append(ids)
                left_out += beyond or 0
        segments = segments.without({index for index, ids in enumerate(tokens) if not ids})
        protected_parts = (
            [None] * len(read)
            if stand_ins is None
            else [each if each.edits or each.capitals else None for each in stand_ins]
        )
        sentences = [
            Sentence(
                (*prefix, *ids),
                Literals.of(core[:_LOOKED_AT]),
                segmenter.foreign_letters(core[:_LOOKED_AT]),
                each,
                prefix=len(prefix),
            )
            for core, ids, each in zip(read, tokens, protected_parts, strict=True)
            if ids
        ]
        if glossary is not None:
            kept = [core for core, ids in zip(read, tokens, strict=True) if ids]
            sentences = [self._demanding(*each, glossary, source) for each in zip(kept, sentences, strict=True)]
        copied = None
        if protected is not None:
            if targets != protected.parts:
                copied = tuple(protected.restored(piece, targets) for piece in segments.copied)
            segments = segments.restored(protected.restored)
        return TranslationQuery(
            text=text,
            segments=segments,
            sentences=tuple(sentences),
            beam_size=beam_size,
            options=options,
            max_target=self._max_target,
            detected_language=None,
            language_probability=language_probability,
            truncated=left_out or None,
            attends=self.decoder.attends,
            copied=copied,
            has_glossary=glossary is not None,
        )

    def _demanding(self, core: str, sentence: Sentence, glossary: Glossary, source: str) -> Sentence:
        """Return a sentence with the terms of a glossary that it has."""
        terms = glossary.terms(core, source)
        if not terms:
            return sentence
        first = next((letter for letter in core if letter.isalpha()), "")
        heads = self.config.alignment
        guided = self.decoder.attends and heads is not None and heads.offset == 0
        tokens = self.source_spans(core, len(sentence.tokens), sentence.prefix) if guided else None
        constraints = self._target_tokens.constraints(terms, tokens, capitalized=first.isupper())
        return replace(sentence, terms=tuple(terms), constraints=constraints)

    def _tokenize(
        self, sentences: Sequence[str], keep: Keep | None, segmenter: Segmenter
    ) -> list[tuple[list[int], int | None]]:
        """Return the ids of each sentence, which may be none, and how many were left out."""
        read = [segmenter.normalized(self._limit.characters(each, keep)) for each in sentences]
        return [
            (list(self._limit.tokens(ids, keep)), self._limit.left_out(sentence, ids))
            for sentence, ids in zip(sentences, self._tokenizer.encode_batch(read), strict=True)
        ]

    def warm_up_parts(self, operation: str, count: int, length: int) -> list[SourceSequence]:
        tokens = (self.config.special_tokens.unknown,) * max(1, min(length, self._limit.max_tokens) - 1)
        return [SourceSequence(tokens, 5, SearchOptions(), min(length + 10, self._max_target))] * count

    def self_test(self) -> None:
        self.translate(["a"], truncate=True)  # which may have nothing to translate
        languages = self.config.languages
        ((ids, _),) = self._tokenize(["a"], head, self._segmenter(languages.source))
        tokens = (*languages.prefix(None), *(ids or [self.config.special_tokens.unknown]))
        options = SearchOptions(prefix=languages.forced(None))
        (found,) = self.decoder.search([SourceSequence(tokens, 5, options, min(12, self._max_target))])
        self._target_tokenizer.decode_batch([each.tokens for each in found])

    def first_query(self, query: AnyQuery, params: TranslateParams) -> AnyQuery:
        """Return a query of the first step through a third language that returns what the second one needs.

        Raises `QueryError` for what such a translation cannot have: terms of a glossary without a first model with word
        alignment, or in a text with markup.
        """
        if params.coverage is not None:
            raise QueryError("coverage: there is none of translations through a third language")
        if isinstance(query, MarkupQuery):
            wanted = {"alignment": params.alignment, "confidences": params.confidences, "glossary": params.glossary}
            if given := [name for name, value in wanted.items() if value]:
                raise QueryError(f"{given[0]}: there is none of texts with markup through a third language")
            return query
        if not params.alignment and params.glossary is None:
            return replace(query, confidences=params.confidences)
        if self.config.alignment is None:
            name = "alignment" if params.alignment else "glossary"
            raise QueryError(
                f"{name}: through a third language it needs a first model with word alignment, which {self._full_name} "
                "does not have"
            )
        options = replace(query.options, attention=True)
        return replace(query, options=options, confidences=params.confidences)

    def first_step(
        self, query: AnyQuery, outputs: Sequence[Sequence[Hypothesis]], params: TranslateParams
    ) -> FirstStep:
        """Return the first step of a translation through a third language, by the outputs of its `first_query`."""
        target = self.config.languages.chosen_target(params.target_language)
        if isinstance(query, MarkupQuery):
            return FirstStep(self.result(query, outputs), self._full_name, target, query.markup, None)
        found, spans = self._plain_result(query, outputs, query.detected_language)
        written = found.translations[0].text
        sentences = [FirstSentence(source, target, written[slice(*target)]) for source, target in spans[0]]
        if params.terms is not None:
            language = query.source_language or self.config.languages.source
            sentences = [demanding(each, found, params.terms, (language, target)) for each in sentences]
        if params.protect and (parts := params.protection().of(query.text)) is not None:
            own = {parts.parts[mark] for mark, kind in parts.kinds.items() if kind is None}
            sentences = [with_places(each, own) for each in sentences]
        return FirstStep(found, self._full_name, target, PLAIN, tuple(sentences), params.terms is not None)

    def second_query(self, first: FirstStep, params: TranslateParams, max_sentences: int | None = None) -> SecondQuery:
        """Check and tokenize a text in the third language, each of its sentences on its own.

        Raises the errors of `query`, which say that the text in the third language is meant.
        """
        options = params.options()
        read = partial(
            self.query,
            beam_size=params.beam_size,
            truncate=params.truncate,
            source_language=params.source_language,
            target_language=params.target_language,
            protection=params.protection(),
        )
        try:
            if first.sentences is None:
                whole = read(first.text, options=options, max_sentences=max_sentences, markup=first.markup)
                return SecondQuery(first, (whole,))
            found: list[AnyQuery] = []
            for each in first.sentences:
                left = None if max_sentences is None else max_sentences - sum(len(one.parts()) for one in found)
                found.append(
                    read(
                        each.text,
                        options=options,
                        max_sentences=left,
                        alignment=params.alignment,
                        confidences=params.confidences,
                        glossary=each.demands,
                        marks=each.protected,
                    )
                )
            return SecondQuery(first, tuple(found))
        except TooManyPartsError:
            raise
        except TextTooLongError as error:
            raise QueryError(
                f"in the language {first.language}, through which the text is translated: {error}"
            ) from error

    @property
    def _full_name(self) -> str:
        return f"{self.manifest.name}:{self.manifest.version}"

    def result(self, query: AnyQuery | SecondQuery, outputs: Sequence[Sequence[Hypothesis]]) -> Translation:
        """Join the hypotheses of the sentences: the i-th translation has the i-th best of each.

        Hypotheses that keep more of a sentence's literals go before the others. A sentence with fewer hypotheses
        repeats its last; what stands between sentences stays as it is.
        """
        if isinstance(query, SecondQuery):
            some = iter(outputs)
            second = [self.result(each, list(itertools.islice(some, len(each.parts())))) for each in query.queries]
            return joined(query.first, second, self._full_name)
        if isinstance(query, TranslationQuery):
            needs_spans = query.confidences or query.has_glossary
            return self._plain_result(query, outputs, query.detected_language, needs_spans=needs_spans)[0]
        found, first = [], 0
        for each in query.blocks:
            part_outputs = outputs[first : first + len(each.sentences)]
            found.append(self._plain_result(each, part_outputs, query.detected_language))
            first += len(each.sentences)
        results = []
        for rank in range(max([1, *(len(result.translations) for result, _ in found)])):
            done: list[str] = []
            score = 0.0
            for block, part, (result, sentences) in zip(query.document.blocks, query.blocks, found, strict=True):
                chosen = min(rank, len(result.translations) - 1)
                best = result.translations[chosen]
                score += best.score
                if not part.sentences and best.text == part.text:
                    done.append(filled(block.markup, done))
                    continue
                links = [(link.source, link.target) for link in best.alignment or ()]
                done.append(block.translated(Aligned(part.text, best.text, sentences[chosen], links), done))
            results.append(Translated(query.document.joined(done), score, glossary=_without_spans(found, rank)))
        language = query.detected_language
        doubtful = language is not None or any(result.low_confidence for result, _ in found)
        left_out = sum(each.truncated or 0 for each in query.blocks)
        rated = [result.confidence for result, _ in found if result.confidence is not None]
        return Translation(
            query.text,
            tuple(results),
            doubtful,
            language,
            left_out or None,
            min(rated) if rated else None,
            query.source_language,
        )

    def _plain_result(
        self,
        query: TranslationQuery,
        outputs: Sequence[Sequence[Hypothesis]],
        language: str | None,
        *,
        needs_spans: bool = True,
    ) -> tuple[Translation, list[list[tuple[Span, Span]]]]:
        """Return the result of a text without markup, and the sentences of the text and of each translation.

        `language` is that of the whole text where it is not the model's. Without `needs_spans` sentences are empty.
        """
        ranked = self._ranked_hypotheses(query, outputs)
        results, spans = [], []
        confidences: list[float] = []
        best: list[_Verdict] = []
        for rank in range(max([1, *map(len, ranked)])):
            chosen = [some[min(rank, len(some) - 1)] for some in ranked]
            texts = [self._restored(*each) for each in zip(query.sentences, chosen, strict=True)]
            spans.append(_sentence_spans(query, texts) if needs_spans else [])
            rated = rank == 0 or query.confidences or query.coverage is not None
            verdicts = self._verdicts(query, chosen, language) if rated else []
            confidences.append(min((each.confidence or 0.0 for each in verdicts), default=0.0))
            best = best or verdicts
            results.append(
                Translated(
                    query.target_segments.joined(texts),
                    math.fsum(hypothesis.score for _, hypothesis in chosen),
                    self._links(query, chosen, texts) if query.options.attention else None,
                    self._rated(query, chosen, spans[-1], verdicts) if query.confidences else None,
                    self._glossary_uses(query, chosen, spans[-1]) if query.has_glossary else None,
                )
            )
        doubtful = query.segments.foreign or language is not None or any(each.low for each in best)
        doubtful = doubtful or seems_to_have_branches(query.text)  # which are protected as a whole
        least = min((each.confidence for each in best if each.confidence is not None), default=None)
        code = query.source_language
        found = Translation(query.text, tuple(results), doubtful, language, query.truncated, least, code)
        return self._set(query, found, confidences), spans

    def _set(self, query: TranslationQuery, found: Translation, confidences: Sequence[float]) -> Translation:
        """Return a result with the set in place of its translations, where a coverage was chosen."""
        if query.coverage is None or self._sets is None:
            return found
        size = self._sets.size(confidences, query.coverage)
        return replace(found, translations=found.translations[:size], calibration_examples=self._sets.examples)

    def _ranked_hypotheses(
        self, query: TranslationQuery, outputs: Sequence[Sequence[Hypothesis]]
    ) -> list[list[tuple[str, Hypothesis]]]:
        """Return the n best hypotheses of each sentence with their texts."""
        found = zip(query.segments.cores, query.sentences, outputs, strict=True)
        return [self._ranked(*each)[: query.options.n_best] for each in found]

    def _ranked(self, core: str, sentence: Sentence, hypotheses: Sequence[Hypothesis]) -> list[tuple[str, Hypothesis]]:
        """Return the hypotheses with their texts, best first, those that keep more of the literals before others.

        The text of an empty one is the sentence itself.
        """
        decoded = self._target_tokenizer.decode_batch([each.tokens for each in hypotheses])
        stand_ins = sentence.stand_ins
        core = core if stand_ins is None else stand_ins.text
        found = [(printable(text, core) or core, each) for text, each in zip(decoded, hypotheses, strict=True)]
        if stand_ins is not None or sentence.chooses or sentence.terms:
            found.sort(key=lambda each: _rank(sentence, each[0]))
        return found

    def _restored(self, sentence: Sentence, chosen: tuple[str, Hypothesis]) -> str:
        """Return a translation of a sentence with its parts, in capitals where the sentence is in capitals."""
        text, _ = chosen
        stand_ins = sentence.stand_ins
        return text if stand_ins is None else stand_ins.restored(text, self._target_edits(sentence, chosen))

    def _target_edits(self, sentence: Sentence, chosen: tuple[str, Hypothesis]) -> tuple[Edit, ...]:
        """Return the edits that put the parts of a sentence into its translation."""
        stand_ins, (text, hypothesis) = sentence.stand_ins, chosen
        if stand_ins is None:
            return ()

        def linked(span: Span) -> list[tuple[Span, float]]:
            if self.config.alignment is None or hypothesis.attention is None:
                return []
            length = len(sentence.tokens)
            tokens, targets = self._token_spans(stand_ins.text, length, text, hypothesis, sentence.prefix)
            words = words_of(text)
            offset = self.config.alignment.offset
            weights = word_weights(hypothesis.attention, tokens, [span], targets, words, offset)
            return [(word, float(weight)) for word, (weight,) in zip(words, weights.tolist(), strict=True)]

        return stand_ins.target_edits(text, linked)

    def _links(
        self, query: TranslationQuery, chosen: Sequence[tuple[str, Hypothesis]], texts: Sequence[str]
    ) -> tuple[Link, ...]:
        """Return the links between the words of a text and those of one of its translations."""
        segments = query.segments
        places = positions_in(query.text, segments.joined(segments.cores))
        copied = query.target_segments.copied
        source, target = len(segments.copied[0]), len(copied[0])
        links: list[Link] = []
        following = zip(segments.copied[1:], copied[1:], strict=True)
        found = zip(segments.cores, query.sentences, chosen, texts, following, strict=True)
        for core, sentence, (text, hypothesis), restored, (after, target_after) in found:
            stand_ins, edits = sentence.stand_ins, self._target_edits(sentence, (text, hypothesis))
            read, source_edits = (core, ()) if stand_ins is None else (stand_ins.text, stand_ins.edits)
            for one, other in self.sentence_links(read, len(sentence.tokens), text, hypothesis, sentence.prefix):
                ours, theirs = moved_by(source_edits, one), moved_by(edits, other)
                (moved_source,) = moved([(source + ours[0], source + ours[1])], places)
                links.append(Link(moved_source, (target + theirs[0], target + theirs[1])))
            source, target = source + len(core) + len(after), target + len(restored) + len(target_after)
        return tuple(links)

    def _glossary_uses(
        self, query: TranslationQuery, chosen: Sequence[tuple[str, Hypothesis]], spans: Sequence[tuple[Span, Span]]
    ) -> tuple[GlossaryUse, ...]:
        """Return the terms of a text and whether one of its translations uses them; `spans` are the sentences."""
        uses: list[GlossaryUse] = []
        places: list[int] | None = None
        start = len(query.segments.copied[0])
        found = zip(query.segments.cores, query.sentences, chosen, spans, query.segments.copied[1:], strict=True)
        for core, sentence, (text, hypothesis), (_, (target_start, _)), after in found:
            for term in sentence.terms:
                if places is None:
                    places = positions_in(query.text, query.segments.joined(query.segments.cores))
                first, last = moved_by(() if sentence.stand_ins is None else sentence.stand_ins.edits, term.span)
                (source,) = moved([(start + first, start + last)], places)
                target = term.place_in(text)
                if target is not None:
                    first, last = moved_by(self._target_edits(sentence, (text, hypothesis)), target)
                    target = (target_start + first, target_start + last)
                uses.append(GlossaryUse(term.entry.source, term.target, target is not None, source, target))
            start += len(core) + len(after)
        return tuple(uses)

    def sentence_links(
        self, core: str, length: int, text: str, hypothesis: Hypothesis, prefix: int | None = None
    ) -> list[tuple[Span, Span]]:
        """Return the links between the words of a sentence and of its translation.

        `length` is the number of tokens that the encoder read, the end not included, `prefix` that of the tokens before
        the sentence, and `text` that of the hypothesis, which has its attention. Raises `ValueError` for a model
        without `alignment`.
        """
        heads, attention = self.config.alignment, hypothesis.attention
        if heads is None or attention is None:
            raise ValueError("the hypothesis has no attention, or the model no alignment")
        tokens, target_tokens = self._token_spans(core, length, text, hypothesis, prefix)
        ours, theirs = words_of(core), words_of(text)
        links = aligned_words(attention, tokens, ours, target_tokens, theirs, heads.offset)
        return [(ours[source], theirs[target]) for source, target in links]

    def _token_spans(
        self, core: str, length: int, text: str, hypothesis: Hypothesis, prefix: int | None
    ) -> tuple[list[Span], list[Span]]:
        """Return the characters of each token of a sentence, and of each token of its translation."""
        decoded, spans = self.target_spans(hypothesis)
        return self.source_spans(core, length, prefix), moved(spans, positions_in(text, decoded))

    def source_spans(self, core: str, length: int, prefix: int | None = None) -> list[Span]:
        """Return the characters of each of the first `length` tokens of a sentence.

        The first `prefix` tokens, by default those of the default language, have none.
        """
        languages = self.config.languages
        normalized = self._segmenter(languages.source).normalized(core)
        spans = moved(self._tokenizer.source_spans(normalized), positions_in(core, normalized))
        count = len(languages.prefix(None)) if prefix is None else prefix
        return [*[(0, 0)] * count, *spans][:length]

    def target_ids(self, text: str) -> list[int]:
        """Return the tokens of a text in the target language, without the end."""
        (ids,) = self._target_tokenizer.encode_batch([text])
        return ids

    def target_spans(self, hypothesis: Hypothesis) -> tuple[str, list[Span]]:
        """Return the text of a hypothesis, and the characters of each of its tokens."""
        (text,) = self._target_tokenizer.decode_batch([hypothesis.tokens])
        return text, self._target_tokenizer.target_spans(hypothesis.tokens, text)

    def sentence_signals(
        self, query: TranslationQuery, outputs: Sequence[Sequence[Hypothesis]]
    ) -> list[dict[SignalName, float]]:
        """Return what the confidence in the best translation of each sentence depends on."""
        best = [some[0] for some in self._ranked_hypotheses(query, outputs)]
        found = zip(query.segments.cores, query.sentences, best, strict=True)
        return [
            _signals(query, core, sentence, chosen, self._fails(query, sentence, chosen), query.detected_language)
            for core, sentence, chosen in found
        ]

    def _verdicts(
        self, query: TranslationQuery, chosen: Sequence[tuple[str, Hypothesis]], language: str | None
    ) -> list["_Verdict"]:
        """Return of a translation of each sentence how likely it is to be acceptable."""
        found = zip(query.segments.cores, query.sentences, chosen, strict=True)
        return [
            self._verdict(query, core, sentence, one, self._fails(query, sentence, one), language)
            for core, sentence, one in found
        ]

    def _fails(self, query: TranslationQuery, sentence: Sentence, chosen: tuple[str, Hypothesis]) -> bool:
        """Return whether a translation was cut off, is empty but for forced tokens, or lacks a part to be kept."""
        text, hypothesis = chosen
        if not self._forced < len(hypothesis.tokens) < query.most_tokens(sentence):
            return True
        return not sentence.foreign_letters.issubset(text) or bool(sentence.literals.differences(text))

    def _verdict(
        self,
        query: TranslationQuery,
        core: str,
        sentence: Sentence,
        chosen: tuple[str, Hypothesis],
        failed: bool,
        language: str | None,
    ) -> "_Verdict":
        if (rated := self.config.confidence) is not None:
            confidence = rated.probability(_signals(query, core, sentence, chosen, failed, language))
            return _Verdict(confidence, failed or confidence < rated.threshold)
        threshold, (_, hypothesis) = self.config.low_confidence, chosen
        below = threshold is not None and hypothesis.mean_log_probability < threshold.log_probability
        return _Verdict(None, failed or below)

    def _rated(
        self,
        query: TranslationQuery,
        chosen: Sequence[tuple[str, Hypothesis]],
        spans: Sequence[tuple[Span, Span]],
        verdicts: Sequence["_Verdict"],
    ) -> tuple[TranslatedSentence, ...]:
        """Return the confidence in each sentence of a translation and in its words."""
        return tuple(
            TranslatedSentence(source, target, verdict.confidence, self._rated_words(sentence, one, target[0]))
            for sentence, one, (source, target), verdict in zip(query.sentences, chosen, spans, verdicts, strict=True)
        )

    def _rated_words(
        self, sentence: Sentence, chosen: tuple[str, Hypothesis], start: int
    ) -> tuple[TranslatedWord, ...]:
        """Return the words of a sentence's translation, which starts at that character, with their probabilities."""
        text, hypothesis = chosen
        decoded, tokens = self.target_spans(hypothesis)
        spans, edits = moved(tokens, positions_in(text, decoded)), self._target_edits(sentence, chosen)
        words = words_of(text)
        sums, place = [0.0] * len(words), 0
        for (first, _), value in zip(spans, hypothesis.token_log_probabilities.tolist(), strict=False):
            # A token without characters of its own, or a space, belongs to the word that it begins.
            while place + 1 < len(words) and words[place][1] <= first:
                place += 1
            if words:
                sums[place] += value
        moved_words = [moved_by(edits, word) for word in words]
        return tuple(
            TranslatedWord((start + first, start + last), math.exp(min(0.0, total)))
            for (first, last), total in zip(moved_words, sums, strict=True)
        )


@dataclass(frozen=True, slots=True)
class _Verdict:
    """How likely the translation of a sentence is to be acceptable."""

    confidence: float | None
    low: bool
    """Whether it failed a check, or the confidence is below the threshold."""


def _signals(
    query: TranslationQuery,
    core: str,
    sentence: Sentence,
    chosen: tuple[str, Hypothesis],
    failed: bool,
    language: str | None,
) -> dict[SignalName, float]:
    text, hypothesis = chosen
    return signals(
        core if sentence.stand_ins is None else sentence.stand_ins.text,
        sentence.tokens,
        text,
        hypothesis,
        failed_check=failed,
        other_language=language is not None,
        language_probability=query.language_probability,
    )


def _enclosing(core: str, sentence: Sentence, words: Sequence[str]) -> Sentence:
    """Return a sentence with those numbers and names in tags that it has."""
    return replace(sentence, enclosed=tuple(word for word in words if word in core))


def _without_spans(found: Sequence[tuple[Translation, object]], rank: int) -> tuple[GlossaryUse, ...] | None:
    """Return the uses of terms in the blocks of a text with markup."""
    chosen = [each.translations[min(rank, len(each.translations) - 1)].glossary for each, _ in found]
    if all(uses is None for uses in chosen):
        return None
    return tuple(replace(use, source=None, target=None) for uses in chosen for use in uses or ())


def _rank(sentence: Sentence, text: str) -> tuple[int, int, tuple[bool, int], int]:
    """Return what orders the hypotheses of a sentence: parts, terms, literals and names in tags that they lack."""
    parts = 0 if sentence.stand_ins is None else sentence.stand_ins.misses(text)
    terms = sum(term.place_in(text) is None for term in sentence.terms)
    return parts, terms, sentence.literals.rank(text), sum(not has_word(text, word) for word in sentence.enclosed)


def _sentence_spans(query: TranslationQuery, texts: Sequence[str]) -> list[tuple[Span, Span]]:
    """Return the characters of each sentence in the text, and those of its translation."""
    segments = query.segments
    cores = segments.cores
    places = positions_in(query.text, segments.joined(cores)) if texts else []
    copied = query.target_segments.copied
    source, target = len(segments.copied[0]), len(copied[0])
    found: list[tuple[Span, Span]] = []
    for core, text, after, target_after in zip(cores, texts, segments.copied[1:], copied[1:], strict=True):
        (ours,) = moved([(source, source + len(core))], places)
        found.append((ours, (target, target + len(text))))
        source, target = source + len(core) + len(after), target + len(text) + len(target_after)
    return found
