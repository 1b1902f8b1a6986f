"""Building word-level vocabularies."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import NFC, Lowercase, Replace, Sequence
from tokenizers.pre_tokenizers import PreTokenizer, Split, WhitespaceSplit

from models.tokenization import END, UNKNOWN, WordTokenizer

__all__ = ["WordStyle", "build_word_tokenizer"]

WordStyle = Literal["words", "whitespace"]
"""`words` separates punctuation and keeps contractions whole; `whitespace` is for text that is tokenized already."""

_WORD = r"\w+(?:['.]\w+)*|[^\w\s]"


def _pre_tokenizer(style: WordStyle) -> PreTokenizer:
    if style == "whitespace":
        return WhitespaceSplit()
    return Split(Regex(_WORD), behavior="removed", invert=True)


def build_word_tokenizer(
    texts: Iterable[str], *, style: WordStyle = "words", lowercase: bool = True, min_count: int = 1
) -> WordTokenizer:
    """A tokenizer for `<unk>`, `</s>` and the words seen at least `min_count` times, most frequent first.

    Words of equal count are in alphabetical order, so that the same text always gives the same vocabulary.
    """
    tokenizer = Tokenizer(WordLevel({UNKNOWN: 0, END: 1}, unk_token=UNKNOWN))
    steps = [NFC(), Replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"), *([Lowercase()] if lowercase else [])]
    tokenizer.normalizer = Sequence(steps)
    tokenizer.pre_tokenizer = _pre_tokenizer(style)
    counts: Counter[str] = Counter()
    for text in texts:
        normalized = tokenizer.normalizer.normalize_str(text)
        counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized))
    words = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
    vocabulary = [UNKNOWN, END, *(word for word in words if word not in (UNKNOWN, END))]
    tokenizer.model = WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token=UNKNOWN)
    return WordTokenizer(tokenizer)
