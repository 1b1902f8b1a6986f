"""Tokenizers that are built from texts, and those of pretrained encoders."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import BPE, WordLevel, WordPiece
from tokenizers.normalizers import NFC, BertNormalizer, Lowercase, Replace, Sequence
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Digits, Split, WhitespaceSplit
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

from models.bundle.contract import SpecialTokens
from models.native import native_errors
from models.tasks.causal_tokenizer import CausalTokenizer
from models.text.tokenization import END, UNKNOWN, WORDS, EncoderTokenizer, SubwordTokenizer, WordTokenizer

__all__ = [
    "END_OF_TEXT",
    "WordStyle",
    "build_causal_tokenizer",
    "build_encoder_tokenizer",
    "build_subword_tokenizer",
    "build_word_tokenizer",
    "framing_tokens",
    "read_causal_tokenizer",
    "read_encoder_tokenizer",
    "read_subword_tokenizer",
    "unknown_token",
]

WordStyle = Literal["words", "whitespace"]
"""`words` separates punctuation and keeps contractions whole; `whitespace` is for text that is tokenized already."""

END_OF_TEXT = "<|endoftext|>"
"""Spelling of the token before and after each text of a causal language model, as in GPT-2."""


@native_errors()
def build_word_tokenizer(
    texts: Iterable[str], *, style: WordStyle = "words", lowercase: bool = True, min_count: int = 1
) -> WordTokenizer:
    """Return a tokenizer for `<unk>`, `</s>` and the words seen at least `min_count` times, most frequent first.

    Words of equal count are in alphabetical order, so that the same text always gives the same vocabulary.
    """
    tokenizer = Tokenizer(WordLevel({UNKNOWN: 0, END: 1}, unk_token=UNKNOWN))
    steps = [NFC(), Replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"), *([Lowercase()] if lowercase else [])]
    tokenizer.normalizer = Sequence(steps)
    words_alone = Split(Regex(WORDS), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = WhitespaceSplit() if style == "whitespace" else words_alone
    counts: Counter[str] = Counter()
    for text in texts:
        normalized = tokenizer.normalizer.normalize_str(text)
        counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized))
    words = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
    vocabulary = [UNKNOWN, END, *(word for word in words if word not in (UNKNOWN, END))]
    tokenizer.model = WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token=UNKNOWN)
    return WordTokenizer(tokenizer)


@native_errors()
def build_subword_tokenizer(
    texts: Iterable[str], *, vocab_size: int, separate_digits: bool = False
) -> SubwordTokenizer:
    """Return a byte-pair encoding with `<unk>`, `</s>`, the 256 bytes and as many merges as fit the vocabulary.

    With `separate_digits` each digit is a token of its own, so that a model can copy any number.

    Raises `ValueError` for a vocabulary without room for the bytes.
    """
    alphabet = ByteLevel.alphabet()
    if vocab_size < len(alphabet) + 2:
        raise ValueError(f"vocab_size must be at least {len(alphabet) + 2}, not {vocab_size}")
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=True)
    if separate_digits:
        _separate_digits(tokenizer)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size, special_tokens=[UNKNOWN, END], initial_alphabet=sorted(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return SubwordTokenizer(tokenizer)


@native_errors()
def build_causal_tokenizer(texts: Iterable[str], *, vocab_size: int) -> CausalTokenizer:
    """Return a byte-pair encoding of unchanged texts: `END_OF_TEXT`, the 256 bytes and as many merges as fit.

    Raises `ValueError` for a vocabulary without room for the bytes.
    """
    alphabet = ByteLevel.alphabet()
    if vocab_size < len(alphabet) + 1:
        raise ValueError(f"vocab_size must be at least {len(alphabet) + 1}, not {vocab_size}")
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return CausalTokenizer(tokenizer, SpecialTokens(unknown=0, end=0, start=0))


@native_errors()
def read_causal_tokenizer(path: Path, special: SpecialTokens | None = None) -> CausalTokenizer:
    """Return the tokenizer of a run.

    It is that of a pretrained model with the `special` tokens, or without these one that `build_causal_tokenizer` made.
    """
    return CausalTokenizer.from_file(path, special or SpecialTokens(unknown=0, end=0, start=0))


@native_errors()
def read_subword_tokenizer(path: Path, *, separate_digits: bool = False) -> SubwordTokenizer:
    """Return the byte-pair encoding of another run; with `separate_digits` each digit is a token of its own."""
    tokenizer = Tokenizer.from_file(str(path))
    if separate_digits:
        _separate_digits(tokenizer)
    return SubwordTokenizer(tokenizer)


def _separate_digits(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = PreTokenizers([ByteLevel(add_prefix_space=True), Digits(individual_digits=True)])


@native_errors()
def build_encoder_tokenizer(texts: Iterable[str], *, vocab_size: int, mask: bool = False) -> EncoderTokenizer:
    """Return lower-case word pieces as in BERT (Devlin et al. 2019), at most `vocab_size`, special ones included.

    The special token `[MASK]` is one of them with `mask`.
    """
    special = ["[PAD]", EncoderTokenizer.unknown_word, "[CLS]", EncoderTokenizer.end_word, *["[MASK]"] * mask]
    tokenizer = Tokenizer(WordPiece(unk_token=EncoderTokenizer.unknown_word))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder()
    tokenizer.train_from_iterator(
        texts, WordPieceTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False)
    )
    return EncoderTokenizer(tokenizer)


@native_errors()
def read_encoder_tokenizer(path: Path) -> EncoderTokenizer:
    """Return the tokenizer of a pretrained encoder.

    Raises `ValueError` where the file is no tokenizer, or not one as `framing_tokens` needs it.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception
        raise ValueError(f"{path} is not a tokenizer file: {error}") from error
    spelled = ("[CLS]", EncoderTokenizer.unknown_word, EncoderTokenizer.end_word)
    as_bert = all(tokenizer.token_to_id(token) is not None for token in spelled)
    try:
        return EncoderTokenizer(tokenizer, None if as_bert else framing_tokens(tokenizer))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@native_errors()
def framing_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Return the tokens that a tokenizer puts around a text, and its unknown one.

    Raises `ValueError` where these are others than one token before the text and one after.
    """
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    bare, framed = (copy.encode("a", add_special_tokens=added).ids for added in (False, True))
    if len(framed) != len(bare) + 2 or framed[1:-1] != bare:
        raise ValueError(
            f"the tokenizer must put one token before and one after a text: {bare} becomes {framed} with special tokens"
        )
    unknown = unknown_token(copy)
    return SpecialTokens(unknown=framed[-1] if unknown is None else unknown, end=framed[-1], start=framed[0])


def unknown_token(tokenizer: Tokenizer) -> int | None:
    """Return the id of the unknown token of a vocabulary, if it has one."""
    model = json.loads(tokenizer.to_str())["model"]
    if isinstance(model.get("unk_id"), int):  # Unigram
        return int(model["unk_id"])
    spelling = model.get("unk_token")
    for candidate in [spelling] if spelling else ["<unk>", "[UNK]"]:
        if (found := tokenizer.token_to_id(candidate)) is not None:
            return int(found)
    return None
