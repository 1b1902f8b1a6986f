"""Tokenizers of encoders, as the service reads them: a file of the library `tokenizers` and three ids."""

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from models.bundle.contract import SpecialTokens
from models.native import native_errors
from models.text.encoding import EncoderTexts
from models.text.tokenization import EncoderTokenizer
from training.data.tokenization import framing_tokens
from training.importing.errors import SAVED_AGAIN, ImportRefused
from training.importing.importer import need
from training.importing.source import SourceDirectory

__all__ = [
    "TOKENIZER",
    "compare_pairs",
    "compare_spans",
    "compare_tokens",
    "encoder_tokenizer",
    "read_tokenizer",
    "reference_tokenizer",
]

TOKENIZER = "tokenizer.json"

_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spm.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
"""Files, besides `tokenizer.json`, that tokenizers are read from."""
_CONVERTED = f"give the directory a {TOKENIZER} of the library tokenizers (save_pretrained of a fast tokenizer)"
"""What can be done with other tokenizers."""
_CODE = "auto_map"
"""Key of JSON files that names Python code to run."""


@native_errors()
def reference_tokenizer(source: SourceDirectory) -> Any:
    """Return the tokenizer that transformers makes of a directory; raises `ImportRefused` where it has none."""
    present = [name for name in (TOKENIZER, *_FILES) if source.has(name)]
    if not any(name in present for name in (TOKENIZER, *_FILES[3:])):
        raise ImportRefused(
            f"{source.name} has no {TOKENIZER}, and no other vocabulary such as {', '.join(_FILES[3:])}; "
            "add the model's (tokenizer.save_pretrained)"
        )
    for name in present:
        source.file(name)
    if _CODE in source.json("tokenizer_config.json", optional=True):
        raise ImportRefused(
            f"tokenizer_config.json names code of the directory for its tokenizer, which is not run; {_CONVERTED}"
        )
    transformers = need("transformers")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            source.path, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # tokenizers raises bare Exception
        raise ImportRefused(
            f"the tokenizer of {source.name} cannot be read: {_first_line(error)}; {_CONVERTED}"
        ) from error
    if not tokenizer.is_fast:
        raise ImportRefused(
            f"transformers cannot convert {type(tokenizer).__name__} to a file of the library tokenizers; {_CONVERTED}"
        )
    return tokenizer


@native_errors()
def read_tokenizer(source: SourceDirectory) -> Tokenizer:
    """Return the tokenizer in `tokenizer.json`; raises `ImportRefused`."""
    try:
        return Tokenizer.from_file(str(source.file(TOKENIZER)))
    except ImportRefused:
        raise
    except Exception as error:  # tokenizers raises bare Exception
        raise ImportRefused(f"{TOKENIZER} is not a tokenizer file: {_first_line(error)}; {SAVED_AGAIN}") from error


@native_errors()
def encoder_tokenizer(tokenizer: Tokenizer) -> tuple[EncoderTokenizer, SpecialTokens]:
    """Return the tokenizer of an encoder and its special tokens; raises `ImportRefused` as `framing_tokens`."""
    try:
        special = framing_tokens(tokenizer)
    except ValueError as error:
        raise ImportRefused(f"{error}; set its post_processor to that (TemplateProcessing)") from error
    return EncoderTokenizer(Tokenizer.from_str(tokenizer.to_str()), special), special


def compare_tokens(ours: EncoderTokenizer, reference: Any, texts: Sequence[str]) -> None:
    """Raise `ImportRefused` where a text has other ids than by the reference tokenizer, special tokens included.

    Texts that spell a special token are left out: the reference reads it as that token, and the service as text.
    """
    texts = [text for text in texts if _is_plain(text, reference)]
    _compare(texts, ours.encode_batch(texts), reference, texts)


def compare_pairs(ours: EncoderTexts, reference: Any, pairs: Sequence[tuple[str, str]]) -> None:
    """Raise `ImportRefused` where a pair of texts has other ids; see `compare_tokens`."""
    pairs = [pair for pair in pairs if all(_is_plain(text, reference) for text in pair)]
    found = [list(each.tokens) for each in ours.paired(pairs, truncate=False)]
    _compare([f"{first} | {second}" for first, second in pairs], found, reference, *zip(*pairs, strict=True))


@native_errors()
def compare_spans(ours: EncoderTokenizer, reference: Any, texts: Sequence[str]) -> None:
    """Raise `ImportRefused` where the tokens of a text stand for other characters; see `compare_tokens`."""
    texts = [text for text in texts if _is_plain(text, reference)]
    encoded = reference(texts, truncation=False, verbose=False, return_offsets_mapping=True)["offset_mapping"]
    for text, wanted, (_, spans) in zip(texts, encoded, ours.encode_with_spans(texts), strict=True):
        if list(map(tuple, wanted[1:-1])) != list(spans):
            raise ImportRefused(
                f"the tokens of {text[:80]!r} stand for other characters than in transformers; {_CONVERTED}"
            )


def _is_plain(text: str, reference: Any) -> bool:
    return not any(token in text for token in reference.all_special_tokens)


@native_errors()
def _compare(shown: Sequence[str], found: Sequence[list[int]], reference: Any, *texts: Sequence[str]) -> None:
    expected = reference(*map(list, texts), truncation=False, verbose=False)["input_ids"]
    for text, wanted, got in zip(shown, expected, found, strict=True):
        if wanted != got:
            raise ImportRefused(
                f"{text[:80]!r} gets the tokens {got[:20]}, but {wanted[:20]} in transformers; {_CONVERTED}"
            )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
