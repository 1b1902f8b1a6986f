"""The section of a manifest for models that read texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from models.bundle.contract import Contract, FileName, PositiveInt, SpecialTokens, TaskConfig
from models.errors import BundleError
from models.text.tokenization import BundleTokenizer

__all__ = ["TextConfig", "TextLimits", "check_tokenizer", "load_tokenizer"]


class TextLimits(Contract):
    """The longest text that the model accepts."""

    max_tokens: PositiveInt
    """Longest text, or sentence of a text that is translated sentence by sentence, in tokens."""


class TextConfig(TaskConfig):
    """The section of a model that reads texts."""

    tokenizer: FileName
    """File of the tokenizer."""
    vocab_size: PositiveInt
    """Tokens of the vocabulary."""
    special_tokens: SpecialTokens
    """Ids of special tokens."""
    limits: TextLimits
    """The longest texts."""

    def files(self) -> frozenset[str]:
        return frozenset({self.tokenizer})

    def summary(self) -> Mapping[str, object]:
        return {"vocab_size": self.vocab_size, "limits": self.limits.model_dump()}

    def description(self) -> Mapping[str, str]:
        return {"vocabulary": f"{self.vocab_size} words, texts of up to {self.limits.max_tokens} tokens"}


TokenizerT = TypeVar("TokenizerT", bound=BundleTokenizer)


def load_tokenizer(kind: type[TokenizerT], bundle: Path, config: TextConfig) -> TokenizerT:
    """Return the tokenizer of a bundle; raises `BundleError` where it is not the one that the manifest describes."""
    try:
        special = None if config.special_tokens.start is None else config.special_tokens
        tokenizer = kind.from_file(bundle / config.tokenizer, special)
    except ValueError as error:
        raise BundleError(str(bundle), [str(error)]) from error
    check_tokenizer(bundle, config.tokenizer, tokenizer, config.vocab_size, config.special_tokens)
    return tokenizer


def check_tokenizer(
    bundle: Path, file: str, tokenizer: BundleTokenizer, vocab_size: int, special: SpecialTokens
) -> None:
    """Raise `BundleError` where a tokenizer is not the one that the manifest describes."""
    problems = [
        f"{file}: its {name} is {found}, the manifest's {promised}"
        for name, found, promised in (
            ("vocab_size", tokenizer.vocab_size, vocab_size),
            ("unknown id", tokenizer.unknown_id, special.unknown),
            ("end id", tokenizer.end_id, special.end),
        )
        if found != promised
    ]
    if problems:
        raise BundleError(str(bundle), problems)
