"""Text generators: a text in, n-best other texts out, such as its summary. All log-probabilities are base e."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from models.backend import Backend
from models.beam_search import Hypothesis, SearchOptions
from models.errors import BundleError, QueryError, TextTooLongError
from models.manifest import Manifest
from models.networks import UnilmNetwork
from models.sequence_to_sequence import BATCH_SOURCES, SequenceToSequenceModel, SourceQuery, checked_options
from models.texts import CHARACTERS_PER_TOKEN, checked_text, several
from models.tokenization import EncoderTokenizer

__all__ = ["Generated", "Generation", "GenerationQuery", "Generator"]


@dataclass(frozen=True, slots=True)
class Generated:
    """One text that the model wrote."""

    text: str
    score: float
    """Its log-probability / length^alpha; the end token counts where the length limit did not cut the text off."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A text and what the model wrote of it, best first."""

    text: str
    outputs: tuple[Generated, ...]


@dataclass(frozen=True, slots=True)
class GenerationQuery:
    """A checked and tokenized text."""

    text: str
    source: SourceQuery


class Generator(SequenceToSequenceModel):
    """A loaded bundle that writes texts. Safe to call from several threads.

    `generate` does a whole job; a server checks and tokenizes queries as they come (`query`), lets their sources take
    steps in a `Decoding` (`start`), and reads what comes out (`written`).
    """

    def __init__(self, manifest: Manifest, tokenizer: EncoderTokenizer, backend: Backend) -> None:
        assert isinstance(manifest.network, UnilmNetwork)
        assert manifest.limits.max_output_tokens is not None
        super().__init__(manifest, backend, manifest.network.layers)
        self._tokenizer = tokenizer
        self.max_output_tokens = manifest.limits.max_output_tokens
        """Tokens of the longest output, its end not counted."""

    @classmethod
    def from_bundle(cls, path: Path, manifest: Manifest, backend: Backend) -> Self:
        try:
            tokenizer = EncoderTokenizer.from_file(path / manifest.text.tokenizer)
        except ValueError as error:
            raise BundleError(str(path), [str(error)]) from error
        if problems := manifest.tokenizer_problems(tokenizer):
            raise BundleError(str(path), problems)
        return cls(manifest, tokenizer, backend)

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
        """Writes of each text; `beam_size` 1 is greedy search.

        `max_output_tokens` is at most the model's own, which it is without; an output that has not ended by then is cut
        off, and stands behind those that have. `truncate` keeps the first tokens of a text that is too long. Raises
        `QueryError` for options out of range, and its `TextTooLongError`.
        """
        queries = [
            self.query(text, beam_size, options=options, max_output_tokens=max_output_tokens, truncate=truncate)
            for text in several(texts)
        ]
        found = self.search([query.source for query in queries], batch_size)
        return [self.written(query, hypotheses) for query, hypotheses in zip(queries, found, strict=True)]

    def query(
        self,
        text: str,
        beam_size: int = 5,
        *,
        options: SearchOptions | None = None,
        max_output_tokens: int | None = None,
        truncate: bool = False,
    ) -> GenerationQuery:
        """Checks and tokenizes one text; see `generate`."""
        options = checked_options(beam_size, options)
        longest = self.max_output_tokens if max_output_tokens is None else max_output_tokens
        if not 1 <= longest <= self.max_output_tokens:
            raise QueryError(f"max_output_tokens must be between 1 and {self.max_output_tokens}, not {longest}")
        limit = self.manifest.text.max_tokens
        characters = limit * CHARACTERS_PER_TOKEN
        text = checked_text(text)
        if len(text) > characters and not truncate:
            raise TextTooLongError(len(text), characters, "characters")
        tokens = self._tokenizer.encode_batch([text[:characters]])[0]
        if len(tokens) > limit and not truncate:
            raise TextTooLongError(len(tokens), limit)
        source = SourceQuery(tuple(tokens[:-1][: limit - 1]), beam_size, options, longest)
        return GenerationQuery(text, source)

    def written(self, query: GenerationQuery, found: Sequence[Hypothesis]) -> Generation:
        """The texts that hypotheses spell."""
        texts = self._tokenizer.decode_batch([hypothesis.tokens for hypothesis in found])
        outputs = [Generated(text, hypothesis.score) for text, hypothesis in zip(texts, found, strict=True)]
        return Generation(query.text, tuple(outputs))
