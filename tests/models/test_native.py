"""Panics of native code: errors of this package, which handlers of `Exception` see."""

import asyncio

import pytest
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from models import ModelError, NativeError
from models.native import native_errors
from models.text.tokenization import EncoderTokenizer, SubwordTokenizer, WordTokenizer

PANICS = "a" * 40 + "b"
"""A text on which Oniguruma gives up: the time of the pattern is exponential."""
VOCABULARY = {"<unk>": 0, "</s>": 1, "[UNK]": 2, "[SEP]": 3, "[CLS]": 4, "a": 5}


def tokenizer(pattern=r"^(a+)+$", unknown="<unk>"):
    made = Tokenizer(WordLevel(VOCABULARY, unk_token=unknown))
    made.pre_tokenizer = Split(Regex(pattern), behavior="isolated")
    return made


CALLS = [
    lambda text: WordTokenizer(tokenizer()).encode(text),
    lambda text: WordTokenizer(tokenizer()).split(text),
    lambda text: WordTokenizer(tokenizer()).encode_batch([text]),
    lambda text: SubwordTokenizer(tokenizer()).encode_batch([text]),
    lambda text: EncoderTokenizer(tokenizer(unknown="[UNK]")).encode(text),
    lambda text: EncoderTokenizer(tokenizer(unknown="[UNK]")).encode_batch([text]),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_panic_of_the_tokenizer_is_an_error_of_this_package(call):
    call("a")
    with pytest.raises(NativeError, match=r"^the tokenizer failed: PanicException: Onig: Regex search error") as raised:
        call(PANICS)
    assert isinstance(raised.value, ModelError)
    assert not isinstance(raised.value.__cause__, Exception)
    call("a")


def test_an_error_of_the_tokenizer_without_a_class_is_one_too():
    found = WordTokenizer(tokenizer(unknown="[unknown]"))
    with pytest.raises(NativeError, match="the tokenizer failed: Exception: WordLevel error: Missing"):
        found.encode("word")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_other_errors_pass(error):
    with pytest.raises(error), native_errors():
        raise error


def test_a_function_is_decorated_and_named():
    @native_errors("this library")
    def failing(text):
        raise Exception(text)

    with pytest.raises(NativeError, match=r"^this library failed: Exception: text$"):
        failing("text")
