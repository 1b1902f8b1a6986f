"""Tests of the section of models that read texts."""

import pytest

from models import BundleError
from models.text.config import load_tokenizer
from models.text.tokenization import WordTokenizer


def test_a_tokenizer_is_the_one_that_the_manifest_describes(bundled, model):
    assert load_tokenizer(WordTokenizer, bundled, model.config).vocab_size == model.vocab_size
    other = model.config.model_copy(update={"vocab_size": 5})
    with pytest.raises(BundleError, match="vocab_size is 7729, the manifest's 5"):
        load_tokenizer(WordTokenizer, bundled, other)


def test_a_summary_has_what_clients_see(model):
    assert model.config.summary() == {"vocab_size": 7729, "limits": {"max_tokens": 1000}}
