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
from models.decoding import Decoding
from models.errors import BundleError, QueryError, TextTooLongError
from models.manifest import Manifest, TransformerNetwork
from models.texts import checked_text, sentences_of, several
from models.tokenization import SubwordTokenizer

__all__ = ["MAX_BEAM_SIZE", "SentenceQuery", "Translated", "Translation", "TranslationQuery", "Translator"]

MAX_BEAM_SIZE = 32
"""Larger beams do not find better translations (Koehn and Knowles 2017, section 3.6), but cost as much more."""

_BATCH_SENTENCES = 32
"""Sentences that `translate` decodes together."""
_REFILL = 1 / 4
"""Places that are free, as a share of all, before other sentences join: one is read no faster than several."""
_IDLE_SHARE = 1 / 2
"""Places that are kept for sentences to come."""


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
class SentenceQuery:
    """A sentence to be decoded."""

    tokens: tuple[int, ...]
    beam_size: int
    options: SearchOptions
    max_tokens: int
    """Tokens its translation may have, which ends degenerate loops."""

    @property
    def length(self) -> int:
        """Tokens that the encoder reads."""
        return len(self.tokens) + 1


@dataclass(frozen=True, slots=True)
class TranslationQuery:
    """A checked and tokenized text."""

    text: str
    sentences: tuple[Sentence, ...]
    beam_size: int
    options: SearchOptions
    max_target: int
    """No translation of a sentence has more tokens."""

    def parts(self) -> list[SentenceQuery]:
        """What is to be decoded: the sentences that are more than white space."""
        return [
            SentenceQuery(each.tokens, self.beam_size, self.options, min(2 * len(each.tokens) + 10, self.max_target))
            for each in self.sentences
            if each.tokens
        ]


class Translator:
    """A loaded translation bundle. Safe to call from several threads.

    `translate` does a whole job; a server checks and tokenizes queries as they come (`query`), lets their sentences
    (`TranslationQuery.parts`) take steps in a `Decoding` (`start`), and joins what comes out (`joined`).
    """

    def __init__(self, manifest: Manifest, tokenizer: SubwordTokenizer, backend: Backend) -> None:
        assert isinstance(manifest.network, TransformerNetwork)
        assert manifest.languages is not None
        self.manifest = manifest
        self.backend = backend
        self._tokenizer = tokenizer
        self._layers = manifest.network.decoder_layers
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
        batch_sentences: int = _BATCH_SENTENCES,
    ) -> list[Translation]:
        """Translates each text; `beam_size` 1 is greedy search.

        `truncate` keeps the first tokens of too long a sentence. Raises `QueryError` for options out of range, and its
        `TextTooLongError`.
        """
        queries = [self.query(text, beam_size, options=options, truncate=truncate) for text in several(texts)]
        found = iter(self.search([part for query in queries for part in query.parts()], batch_sentences))
        return [self.joined(query, [next(found) for _ in query.parts()]) for query in queries]

    def query(
        self, text: str, beam_size: int = 5, *, options: SearchOptions | None = None, truncate: bool = False
    ) -> TranslationQuery:
        """Checks and tokenizes one text; see `translate`."""
        options = SearchOptions() if options is None else options
        if not 1 <= beam_size <= MAX_BEAM_SIZE:
            raise QueryError(f"beam_size must be between 1 and {MAX_BEAM_SIZE}, not {beam_size}")
        if options.n_best > beam_size:
            raise QueryError(f"n_best must be at most beam_size, which is {beam_size}, not {options.n_best}")
        limit = self.manifest.text.max_tokens
        text = checked_text(text)
        pieces = sentences_of(text, self._language) or [""]
        stripped = [piece.strip() for piece in pieces]
        sentences = []
        for piece, core, tokens in zip(pieces, stripped, self._tokenizer.encode_batch(stripped), strict=True):
            if len(tokens) > limit:
                if not truncate:
                    raise TextTooLongError(len(tokens), limit, "tokens in a sentence")
                tokens = tokens[:limit]
            start = piece.index(core)
            sentences.append(Sentence(piece[:start], tuple(tokens if core else ()), piece[start + len(core) :]))
        return TranslationQuery(text, tuple(sentences), beam_size, options, self._max_target)

    def start(self, beam_size: int) -> Decoding:
        """An empty decoding, which sentences can join."""
        return Decoding(
            self.backend,
            layers=self._layers,
            beam_size=beam_size,
            end_id=self._tokenizer.end_id,
            vocab_size=self.manifest.text.vocab_size,
            idle_share=_IDLE_SHARE,
        )

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

    def search(self, parts: Sequence[SentenceQuery], batch_sentences: int = _BATCH_SENTENCES) -> list[list[Hypothesis]]:
        """The hypotheses of each part, of one beam size, in order.

        Similar lengths are decoded together; places of sentences that are over are filled with the next ones.
        """
        found: dict[object, list[Hypothesis]] = {}
        waiting = sorted(range(len(parts)), key=lambda index: parts[index].length)  # the last, longest go first
        decoding = self.start(parts[0].beam_size) if parts else None
        while decoding is not None and (waiting or len(decoding)):
            free = batch_sentences - len(decoding)
            if waiting and free >= min(len(waiting), _REFILL * batch_sentences):
                group = [waiting.pop() for _ in range(min(free, len(waiting)))]
                searches = [(index, parts[index].options, parts[index].max_tokens) for index in group]
                decoding.add([parts[index].tokens for index in group], searches)
            decoding.idle_share = _IDLE_SHARE if waiting else 0
            found |= decoding.step()
        return [found[index] for index in range(len(parts))]
