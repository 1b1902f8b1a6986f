"""Tokenization shared by training and serving: text in, ids out, and back."""

import itertools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from models.bundle.contract import SpecialTokens
from models.native import native_errors
from models.text.limits import ends
from models.text.utf8 import Utf8Tokens
from models.text.words import Span

__all__ = ["END", "UNKNOWN", "WORDS", "BundleTokenizer", "EncoderTokenizer", "SubwordTokenizer", "WordTokenizer"]

UNKNOWN = "<unk>"
"""Spelling of the unknown word in the vocabulary."""
END = "</s>"
"""Spelling of the sentence end, which also precedes every sentence."""
WORDS = r"\w+(?:['.]\w+)*|[^\w\s]"
"""Words, contractions and numbers among them, and single punctuation marks."""

_SUPERFLUOUS = re.compile(
    r"(?<=\w) (') (?=(?:s|t|re|ve|ll|d|m)\b)|(?<=\d)( ?[.,:]) (?=\d)|(?<=\w) (-) (?=\w)|(?<=[(\[]) | (?=[)\]:;%])"
)
"""Spaces between a word and punctuation that the decoder of a BERT tokenizer leaves."""


class BundleTokenizer:
    """A `tokenizers` file whose vocabulary holds the unknown word and the end."""

    unknown_word = UNKNOWN
    end_word = END

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens | None = None) -> None:
        """Raise `ValueError` where a special token is not in the vocabulary.

        `special` are the ids of a vocabulary that spells them in other ways.
        """
        if special is None:
            unknown, end = tokenizer.token_to_id(self.unknown_word), tokenizer.token_to_id(self.end_word)
        else:
            unknown, end = (token if tokenizer.id_to_token(token) else None for token in (special.unknown, special.end))
        if unknown is None or end is None:
            spelling = f"{self.unknown_word!r} or {self.end_word!r}" if special is None else f"{special}"
            raise ValueError(f"the tokenizer's vocabulary lacks {spelling}")
        self._tokenizer = tokenizer
        self.unknown_id: int = unknown
        self.end_id: int = end

    @classmethod
    @native_errors()
    def from_file(cls, path: Path, special: SpecialTokens | None = None) -> Self:
        """Raises `ValueError` where the file is no tokenizer, or lacks the special tokens."""
        try:
            return cls(Tokenizer.from_file(str(path)), special)
        except Exception as error:  # tokenizers raises bare Exception
            raise ValueError(f"{path.name} is not a tokenizer file: {error}") from error

    def save(self, path: Path) -> None:
        self._tokenizer.save(str(path))

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def utf8_tokens(self, vocab_size: int) -> Utf8Tokens | None:
        """Return the bytes of the tokens of a vocabulary in which some are no whole characters; None for another."""
        return None

    def word(self, token: int) -> str:
        """Return the spelling of one id in the vocabulary."""
        word = self._tokenizer.id_to_token(token)
        if word is None:
            raise ValueError(f"token id {token} is outside the vocabulary of {self.vocab_size}")
        return str(word)


class WordTokenizer(BundleTokenizer):
    """A word-level vocabulary.

    The sentence end is never the result of encoding text: a text that spells `</s>` holds an unknown word.
    """

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens | None = None) -> None:
        super().__init__(tokenizer, special)
        self.parts_at_spaces = _parts_at_spaces(tokenizer)
        """Whether a text has the ids of its parts where it is cut before a space, and spaces have none.

        So it is with the tokenizers that `training` builds. False where it is not known.
        """

    @native_errors()
    def encode(self, text: str) -> list[int]:
        """Return the ids of the words of `text`, without a sentence end."""
        return self._as_text(self._tokenizer.encode(text).ids)

    @native_errors()
    def split(self, text: str) -> tuple[list[int], list[str]]:
        """Return the ids and the piece of `text` of each, so that an unknown word keeps its spelling."""
        # Composed first: the tokenizer's offsets would cut combining marks off.
        text = unicodedata.normalize("NFC", text)
        encoding = self._tokenizer.encode(text)
        return self._as_text(encoding.ids), [text[start:end] for start, end in encoding.offsets]

    @native_errors()
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._as_text(encoding.ids) for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _as_text(self, ids: list[int]) -> list[int]:
        return [self.unknown_id if token == self.end_id else token for token in ids]


def _parts_at_spaces(tokenizer: Tokenizer) -> bool:
    """Return whether no step looks across a space (U+0020), which Unicode's normal forms do not (UAX 15, section 9)."""
    whole = (tokenizer.post_processor, tokenizer.truncation, tokenizer.padding)
    if any(step is not None for step in whole) or tokenizer.get_added_tokens_decoder():
        return False
    if not isinstance(tokenizer.model, WordLevel) or tokenizer.pre_tokenizer is None:
        return False
    if tokenizer.normalizer is not None and not _normalizes_in_parts(_described(tokenizer.normalizer)):
        return False
    return _described(tokenizer.pre_tokenizer) in (
        {"type": "WhitespaceSplit"},
        {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Removed", "invert": True},
    )


def _normalizes_in_parts(normalizer: Mapping[str, Any]) -> bool:
    match normalizer:
        case {"type": "Sequence", "normalizers": steps}:
            return all(map(_normalizes_in_parts, steps))
        case {"type": "Replace", "pattern": {"String": str(pattern)}}:
            return pattern != "" and " " not in pattern
        case {"type": "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase"}:
            return True
    return False


def _described(step: Any) -> Any:
    return json.loads(step.__getstate__())


class SubwordTokenizer(BundleTokenizer):
    """Byte-pair encoding of bytes (Sennrich et al. 2016; Radford et al. 2019): every text has ids, none is unknown.

    A text that spells `</s>` or `<unk>` is text like any other. Other tokenizers, of imported models, may have unknown
    words, among which are spellings of special tokens that are pieces of a Unigram model.
    """

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens | None = None) -> None:
        super().__init__(tokenizer, special)
        tokenizer.encode_special_tokens = True
        added = {token for token, each in tokenizer.get_added_tokens_decoder().items() if each.special}
        self._never_text = frozenset() if special is None else frozenset(added - {special.unknown})

    def utf8_tokens(self, vocab_size: int) -> Utf8Tokens | None:
        decoder = b"" if self._tokenizer.decoder is None else self._tokenizer.decoder.__getstate__()
        special = {token for token, each in self._tokenizer.get_added_tokens_decoder().items() if each.special}
        spellings = [None if token in special else self._tokenizer.id_to_token(token) for token in range(vocab_size)]
        if b'"ByteLevel"' in decoder:
            return Utf8Tokens.of_byte_level(spellings)
        return Utf8Tokens.of_byte_fallback(spellings) if b'"ByteFallback"' in decoder else None

    @native_errors()
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without an end."""
        return [self._as_text(encoding.ids) for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _as_text(self, ids: list[int]) -> list[int]:
        if self._never_text.isdisjoint(ids):
            return ids
        return [self.unknown_id if token in self._never_text else token for token in ids]

    @native_errors()
    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of ids; special tokens are left out, bytes that are not UTF-8 become U+FFFD."""
        return [text.strip(" ") for text in self._tokenizer.decode_batch(sequences, skip_special_tokens=True)]

    @native_errors()
    def source_spans(self, text: str) -> list[Span]:
        """Return where each token of a text begins and ends in it."""
        return [(start, end) for start, end in self._tokenizer.encode(text).offsets]

    @native_errors()
    def target_spans(self, ids: Sequence[int], text: str) -> list[Span]:
        """Return where each token begins and ends in the text that the ids are decoded as."""
        ends = [0, *(len(self._tokenizer.decode(ids[: count + 1])) for count in range(len(ids)))]
        shift = ends[-1] - len(self._tokenizer.decode(ids).lstrip(" "))
        places = [min(max(0, end - shift), len(text)) for end in ends]
        return list(itertools.pairwise(places))


class EncoderTokenizer(BundleTokenizer):
    """The tokenizer of a BERT-like encoder: texts become `[CLS] ... [SEP]`, or the same with a vocabulary's own tokens.

    A text that spells `[SEP]` is text like any other. Where the vocabulary's pieces of text include such a spelling, as
    those of Unigram models do, it is an unknown token.
    """

    unknown_word, end_word = "[UNK]", "[SEP]"

    def __init__(self, tokenizer: Tokenizer, special: SpecialTokens | None = None) -> None:
        super().__init__(tokenizer, special)
        start = tokenizer.token_to_id("[CLS]") if special is None else special.start
        if start is None or tokenizer.id_to_token(start) is None:
            raise ValueError("the tokenizer's vocabulary lacks '[CLS]' or the start token")
        self.start_id: int = start
        self.starts_as_bert = special is None
        """Whether the token before every text is spelt `[CLS]`."""
        added = {token for token, each in tokenizer.get_added_tokens_decoder().items() if each.special}
        self._never_text = frozenset({self.start_id, self.end_id, *added} - {self.unknown_id})
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()  # a file keeps the settings of its last use
        tokenizer.no_padding()

    @property
    def mask_id(self) -> int | None:
        """Return the id of the mask token, a special one spelt `[MASK]` or `<mask>`; None where there is none."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        return next((token for token, each in added if each.special and each.content in ("[MASK]", "<mask>")), None)

    @native_errors()
    def encode_batch(self, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
        """Return the ids of each text with `[CLS]` and `[SEP]`; of more than `max_tokens`, head and tail are kept."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [self.framed(self._as_text(encoding.ids), max_tokens) for encoding in encodings]

    @native_errors()
    def encode_several(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without `[CLS]` and `[SEP]`."""
        return [self._as_text(each.ids) for each in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    @native_errors()
    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """Return the ids of each text, without `[CLS]` and `[SEP]`, and the characters of the text of each token."""
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [(self._as_text(encoding.ids), encoding.offsets) for encoding in encodings]

    @property
    def marks_continuations(self) -> bool:
        """Return whether the spelling of a token says that it continues a word, as `##` of WordPiece does."""
        return bool(getattr(self._tokenizer.model, "continuing_subword_prefix", None))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without `[CLS]` and `[SEP]`."""
        return self.encode_several([text])[0]

    def _as_text(self, ids: list[int]) -> list[int]:
        if self._never_text.isdisjoint(ids):
            return ids
        return [self.unknown_id if token in self._never_text else token for token in ids]

    @native_errors()
    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of ids, special tokens left out; spaces around punctuation are removed where none belong."""
        return [
            _SUPERFLUOUS.sub(lambda match: "".join(filter(None, match.groups())).strip(), text).strip(" ")
            for text in self._tokenizer.decode_batch(sequences, skip_special_tokens=True)
        ]

    def framed(self, ids: list[int], max_tokens: int | None = None) -> list[int]:
        """Return `[CLS] ids [SEP]`, truncated to `max_tokens`, both included."""
        kept = ids if max_tokens is None else ends(ids, max(0, max_tokens - 2))
        return [self.start_id, *kept, self.end_id]
