"""Translation models: texts in one language in, n-best translations out.

A text is cut into sentences, which are translated independently of each other and of their neighbours in a batch, and
joined again with the white space that stood between them. All log-probabilities are base e.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from models.backend import Backend
from models.beam_search import Hypothesis, SearchOptions
from models.errors import BundleError, TextTooLongError
from models.manifest import Manifest
from models.networks import TransformerNetwork
from models.sequence_to_sequence import BATCH_SOURCES, SequenceToSequenceModel, SourceQuery, checked_options
from models.texts import CHARACTERS_PER_TOKEN, checked_text, sentences_of, several
from models.tokenization import SubwordTokenizer

__all__ = ["Translated", "Translation", "TranslationQuery", "Translator"]

_TOKENIZED_TOGETHER = 64
"""Sentences in one call of the tokenizer, whose encodings take some 400 bytes a token meanwhile."""


@dataclass(frozen=True, slots=True)
class Translated:
    """One translation of a text."""

    text: str
    score: float
    """Sum of its sentences' scores: log-probability / length^alpha."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A text and its translations, best first."""

    text: str
    translations: tuple[Translated, ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A piece of a text."""

    before: str
    """White space."""
    tokens: tuple[int, ...]
    """Without the end; empty where there is nothing but white space."""
    after: str
    """White space."""


@dataclass(frozen=True, slots=True)
class TranslationQuery:
    """A checked and tokenized text."""

    text: str
    sentences: tuple[Sentence, ...]
    beam_size: int
    options: SearchOptions
    max_target: int
    """No translation of a sentence has more tokens."""

    @property
    def white_space(self) -> int:
        """Characters of white space, which every translation repeats."""
        return sum(len(each.before) + len(each.after) for each in self.sentences)

    def parts(self) -> list[SourceQuery]:
        """What is to be decoded: the sentences that are more than white space."""
        return [
            SourceQuery(each.tokens, self.beam_size, self.options, min(2 * len(each.tokens) + 10, self.max_target))
            for each in self.sentences
            if each.tokens
        ]


class Translator(SequenceToSequenceModel):
    """A loaded translation bundle. Safe to call from several threads.

    `translate` does a whole job; a server checks and tokenizes queries as they come (`query`), lets their sentences
    (`TranslationQuery.parts`) take steps in a `Decoding` (`start`), and joins what comes out (`joined`).
    """

    def __init__(self, manifest: Manifest, tokenizer: SubwordTokenizer, backend: Backend) -> None:
        assert isinstance(manifest.network, TransformerNetwork)
        assert manifest.languages is not None
        super().__init__(manifest, backend, manifest.network.decoder_layers)
        self._tokenizer = tokenizer
        self._max_target = min(2 * manifest.text.max_tokens, manifest.network.positions)
        self._language = manifest.languages.source

    @classmethod
    def from_bundle(cls, path: Path, manifest: Manifest, backend: Backend) -> Self:
        try:
            tokenizer = SubwordTokenizer.from_file(path / manifest.text.tokenizer)
        except ValueError as error:
            raise BundleError(str(path), [str(error)]) from error
        if problems := manifest.tokenizer_problems(tokenizer):
            raise BundleError(str(path), problems)
        return cls(manifest, tokenizer, backend)

    def translate(
        self,
        texts: Sequence[str],
        beam_size: int = 5,
        *,
        options: SearchOptions | None = None,
        truncate: bool = False,
        batch_sentences: int = BATCH_SOURCES,
    ) -> list[Translation]:
        """Translate each text; `beam_size` 1 is greedy search.

        `truncate` keeps the first tokens of too long a sentence. Raises `QueryError` for options out of range, and its
        `TextTooLongError`.
        """
        queries = [self.query(text, beam_size, options=options, truncate=truncate) for text in several(texts)]
        found = iter(self.search([part for query in queries for part in query.parts()], batch_sentences))
        return [self.joined(query, [next(found) for _ in query.parts()]) for query in queries]

    def query(
        self,
        text: str,
        beam_size: int = 5,
        *,
        options: SearchOptions | None = None,
        truncate: bool = False,
        max_sentences: int | None = None,
    ) -> TranslationQuery:
        """Check and tokenize one text; see `translate`.

        Raises `TextTooLongError` also where the text has more than `max_sentences`, before any is tokenized.
        """
        options = checked_options(beam_size, options)
        text = checked_text(text)
        pieces = sentences_of(text, self._language) or [""]
        if max_sentences is not None and len(pieces) > max_sentences:
            raise TextTooLongError(len(pieces), max_sentences, "sentences")
        sentences: list[Sentence] = []
        for first in range(0, len(pieces), _TOKENIZED_TOGETHER):
            sentences += self._sentences(pieces[first : first + _TOKENIZED_TOGETHER], truncate)
        return TranslationQuery(text, tuple(sentences), beam_size, options, self._max_target)

    def _sentences(self, pieces: Sequence[str], truncate: bool) -> list[Sentence]:
        """Tokenize sentences, each with the white space around it."""
        limit = self.manifest.text.max_tokens
        characters = limit * CHARACTERS_PER_TOKEN
        cores = [piece.strip() for piece in pieces]
        longest = max(map(len, cores))
        if longest > characters and not truncate:
            raise TextTooLongError(longest, characters, "characters in a sentence")
        sentences = []
        encoded = self._tokenizer.encode_batch([core[:characters] for core in cores])
        for piece, core, tokens in zip(pieces, cores, encoded, strict=True):
            if len(tokens) > limit:
                if not truncate:
                    raise TextTooLongError(len(tokens), limit, "tokens in a sentence")
                tokens = tokens[:limit]
            start = piece.index(core)
            sentences.append(Sentence(piece[:start], tuple(tokens if core else ()), piece[start + len(core) :]))
        return sentences

    def joined(self, query: TranslationQuery, found: Sequence[Sequence[Hypothesis]]) -> Translation:
        """The translations of a text from the hypotheses of its `parts`, the i-th best from the i-th best of each.

        A part with fewer repeats its last; white space stays as it is.
        """
        results = []
        for rank in range(max([1, *map(len, found)])):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found]
            texts = iter(self._tokenizer.decode_batch([each.tokens for each in chosen]))
            pieces = [each.before + (next(texts) if each.tokens else "") + each.after for each in query.sentences]
            results.append(Translated("".join(pieces), math.fsum(each.score for each in chosen)))
        return Translation(query.text, tuple(results))
