"""The functions of a language model that these endpoints use: of one of words, and of one of subword tokens."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from models import QueryError
from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.causal_results import ScoreTextQuery, TextScore
from models.tasks.language_model import LanguageModel
from models.tasks.language_results import ScoreQuery, SentenceScore
from models.tasks.model import AnyModel
from models.text.tokenization import END, UNKNOWN
from service.protocols.openai.fields import Prompt
from service.protocols.openai.logged import LoggedToken, RankedToken

__all__ = ["SubwordWriter", "WordWriter", "Writer", "writer_of"]


class Writer(abc.ABC):
    """A language model that goes on with texts."""

    end: int
    """The token that ends a text."""
    longest: int
    """Tokens of the longest text."""
    vocab_size: int
    """Number of token ids."""
    salt: str = ""
    """The part of the model's cache that may be used."""

    @abc.abstractmethod
    def query(self, prompt: Prompt, explain: int) -> Any:
        """Check a prompt, to score it with so many alternatives to each token; raises `QueryError`."""

    @abc.abstractmethod
    def scored(self, query: Any) -> Any:
        """Return the query that scores a prompt."""

    @abc.abstractmethod
    def read(self, query: Any) -> tuple[int, ...]:
        """Return the tokens that are read before the first one of a completion; raises `QueryError` without any."""

    @abc.abstractmethod
    def echo(self, query: Any, score: Any | None, alternatives: int) -> tuple[str, list[LoggedToken]]:
        """Return the text of a prompt, and its tokens.

        Where there is a score they have their log-probabilities, and so many `alternatives`.
        """

    @abc.abstractmethod
    def ranked(self, query: Any, score: Any, count: int) -> list[list[RankedToken] | None]:
        """Return each token of a prompt and then the `count` most probable ones; None where nothing precedes it."""

    @abc.abstractmethod
    def written(self, tokens: Sequence[int], *, first: bool) -> list[tuple[str, bytes]]:
        """Return logged text and bytes of tokens of which each may come next; `first` where nothing precedes them."""

    @abc.abstractmethod
    def token_ids(self, text: str, *, special: bool) -> list[int]:
        """Return the ids of a text, with `special` tokens that the tokenizer adds; raises `TextTooLongError`."""

    @abc.abstractmethod
    def spelled(self, ids: Sequence[int]) -> list[str]:
        """Return the spelling of each token; raises `QueryError` for an id outside the vocabulary."""

    @abc.abstractmethod
    def text(self, ids: Sequence[int]) -> str:
        """Return the text of tokens; raises `QueryError` for an id outside the vocabulary."""

    @abc.abstractmethod
    def info(self) -> Mapping[str, object]:
        """Return the members of `/tokenizer_info`."""


class WordWriter(Writer):
    """A model of words, joined by one space each. A text is read after a sentence end."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.end = model.config.special_tokens.end
        self.longest = model.longest_input
        self.vocab_size = model.vocab_size

    def query(self, prompt: Prompt, explain: int) -> ScoreQuery:
        make = self._model.score_query if isinstance(prompt, str) else self._model.score_token_query
        found: ScoreQuery = make(prompt, explain=explain)  # type: ignore[arg-type]
        return found

    def scored(self, query: ScoreQuery) -> ScoreQuery:
        """Return a query without a first sentence end, after which every text is read anyway."""
        if query.tokens[:1] != (self.end,):
            return query
        return replace(query, tokens=query.tokens[1:], words=query.words[1:])

    def read(self, query: ScoreQuery) -> tuple[int, ...]:
        """Return the tokens after a sentence end, which they may begin with themselves."""
        return query.tokens if query.tokens[:1] == (self.end,) else (self.end, *query.tokens)

    def echo(self, query: ScoreQuery, score: SentenceScore | None, alternatives: int) -> tuple[str, list[LoggedToken]]:
        """Return text and tokens; the score holds the last ones, and an end that is none of them."""
        words = self._model.spelled(query.tokens) if not query.text else list(query.words)
        texts = [_spaced(word, first=place == 0) for place, word in enumerate(words)]
        scored = [] if score is None else score.tokens[:-1]
        unscored = len(words) - len(scored)
        tokens = [LoggedToken(text, None) for text in texts[:unscored]]
        for text, token in zip(texts[unscored:], scored, strict=True):
            others = [(f" {each.word}", each.log_probability) for each in token.alternatives[:alternatives]]
            tokens.append(LoggedToken(text, token.log_probability, others))
        if tokens:  # nothing precedes it
            tokens[0] = LoggedToken(texts[0], None)
        return "".join(texts), tokens

    def ranked(self, query: ScoreQuery, score: SentenceScore, count: int) -> list[list[RankedToken] | None]:
        """Return ranks among all outcomes, of which the unknown word is one."""
        scored = score.tokens[:-1]
        unscored = len(query.tokens) - len(scored)
        found: list[list[RankedToken] | None] = [None] * unscored
        for token, each in zip(query.tokens[unscored:], scored, strict=True):
            own = RankedToken(token, self._logged(token), each.log_probability, each.rank)
            best = enumerate(each.best[:count], 1)
            found.append(
                [own, *(RankedToken(other, self._logged(other), value, rank) for rank, (other, value) in best)]
            )
        return [None, *found[1:]] if found else []  # nothing precedes the first one

    def _logged(self, token: int) -> str:
        return _spaced(self._model.spelled([token])[0], first=False)

    def written(self, tokens: Sequence[int], *, first: bool) -> list[tuple[str, bytes]]:
        texts = [_spaced(word, first=first) for word in self._model.spelled(tokens)]
        return [(text, text.encode()) for text in texts]

    def token_ids(self, text: str, *, special: bool) -> list[int]:
        del special
        return self._model.token_ids(text)

    def spelled(self, ids: Sequence[int]) -> list[str]:
        return self._model.spelled(ids)

    def text(self, ids: Sequence[int]) -> str:
        """Return the words with a space between each two."""
        return " ".join(self.spelled(ids))

    def info(self) -> Mapping[str, object]:
        return {
            "tokenizer_class": "WordLevel",
            "model_max_length": self.longest,
            "vocab_size": self._model.vocab_size,
            "bos_token": None,
            "eos_token": END,
            "unk_token": UNKNOWN,
            "pad_token": None,
            "add_bos_token": False,
            "add_eos_token": False,
            "chat_template": None,
        }


def _spaced(word: str, *, first: bool) -> str:
    return word if first else f" {word}"


class SubwordWriter(Writer):
    """A model of subword tokens. A text begins with the start token where its tokenizer puts it there."""

    def __init__(self, model: CausalLanguageModel) -> None:
        self._model = model
        self._special = model.config.special_tokens
        self.end = self._special.end
        self.longest = model.longest_input
        self.vocab_size = model.vocab_size
        self.salt = model.cache_salt

    def query(self, prompt: Prompt, explain: int) -> ScoreTextQuery:
        return self._model.prompt_query(prompt, explain=explain)

    def scored(self, query: ScoreTextQuery) -> ScoreTextQuery:
        return query

    def read(self, query: ScoreTextQuery) -> tuple[int, ...]:
        if not query.tokens and self._special.start is None:
            raise QueryError("the model has no start token, so that nothing can follow an empty prompt")
        return query.tokens or (self._special.start,)  # type: ignore[return-value]

    def echo(self, query: ScoreTextQuery, score: TextScore | None, alternatives: int) -> tuple[str, list[LoggedToken]]:
        scored: Sequence[tuple[float | None, list[tuple[str, float]]]] = [(None, [])] * len(query.tokens)
        if score is not None:
            scored = [
                (
                    each.log_probability,
                    [(self._logged(other.token), other.log_probability) for other in each.alternatives[:alternatives]],
                )
                for each in score.tokens
            ]
        tokens = [
            LoggedToken(self._logged(token), *found, len(self._model.bytes_of(token).decode(errors="replace")))
            for token, found in zip(query.tokens, scored, strict=True)
        ]
        return query.text or self.text(query.tokens), tokens

    def ranked(self, query: ScoreTextQuery, score: TextScore, count: int) -> list[list[RankedToken] | None]:
        found: list[list[RankedToken] | None] = []
        for token, each in zip(query.tokens, score.tokens, strict=True):
            if each.log_probability is None:
                found.append(None)
                continue
            own = RankedToken(token, self._logged(token), each.log_probability, each.rank)
            best = enumerate(each.alternatives[:count], 1)
            found.append(
                [
                    own,
                    *(
                        RankedToken(other.token, self._logged(other.token), other.log_probability, rank)
                        for rank, other in best
                    ),
                ]
            )
        return found

    def _logged(self, token: int) -> str:
        """Return the text of a token, unlike that of others: bytes that are no whole character are spelled."""
        text, content = self._model.tokenizer.text(token), self._model.bytes_of(token)
        if "\N{REPLACEMENT CHARACTER}" not in text or text.encode() == content:
            return text
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)

    def written(self, tokens: Sequence[int], *, first: bool) -> list[tuple[str, bytes]]:
        del first
        return [(self._logged(token), self._model.bytes_of(token)) for token in tokens]

    def token_ids(self, text: str, *, special: bool) -> list[int]:
        return self._model.token_ids(text, special=special)

    def spelled(self, ids: Sequence[int]) -> list[str]:
        return self._model.spelled(ids)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, without special ones; bytes that are no characters become U+FFFD."""
        self.spelled(ids)  # refuses ids outside the vocabulary
        return b"".join(map(self._model.bytes_of, ids)).decode(errors="replace")

    def info(self) -> Mapping[str, object]:
        start, end, unknown = self._special.start, self._special.end, self._special.unknown
        adds_start = self._model.puts_start
        names = self.spelled([end, unknown, *([] if start is None else [start])])
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": self.longest,
            "vocab_size": self._model.vocab_size,
            "bos_token": None if start is None else names[2],
            "eos_token": names[0],
            "unk_token": names[1],
            "pad_token": None,
            "add_bos_token": adds_start,
            "add_eos_token": False,
            "chat_template": None,
        }


def writer_of(model: AnyModel) -> Writer:
    """Return the functions of a model that the endpoints use; raises `QueryError` for one that writes no texts here."""
    if not hasattr(model, "spelled"):
        raise QueryError("this model does not write texts here")
    subwords = hasattr(model, "bytes_of")
    return SubwordWriter(model) if subwords else WordWriter(model)  # type: ignore[arg-type]  # only these have both
