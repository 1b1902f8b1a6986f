"""Tests of the BERT encoder; `test_hugging_face.py` has those of pretrained weights."""

import pytest
import torch

from tests.training.networks.golden import bert
from training.networks.text_encoder import EncoderConfig, TextEncoder


def test_vectors_do_not_depend_on_padding_or_neighbours() -> None:
    torch.manual_seed(0)
    config = EncoderConfig(vocab_size=20, hidden_size=8, inner_size=16, heads=2, layers=2, positions=12)
    encoder = TextEncoder(config).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.5)
        together = encoder(bert.TOKENS, bert.LENGTHS)
        alone = encoder(bert.TOKENS[1:, :3], bert.LENGTHS[1:])
    torch.testing.assert_close(together[1:, :3], alone, rtol=1e-12, atol=1e-12)


def test_dropout_of_attention_weights_is_in_training_only() -> None:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=20, hidden_size=8, inner_size=16, heads=2, layers=2, positions=12, dropout=0.0, attention_dropout=0.5
    )
    encoder = TextEncoder(config)
    with torch.no_grad():
        first, second = encoder(bert.TOKENS, bert.LENGTHS), encoder(bert.TOKENS, bert.LENGTHS)
        assert not torch.equal(first, second)
        encoder.eval()
        plain = TextEncoder(config.model_copy(update={"attention_dropout": 0.0})).eval()
        plain.load_state_dict(encoder.state_dict())
        torch.testing.assert_close(encoder(bert.TOKENS, bert.LENGTHS), plain(bert.TOKENS, bert.LENGTHS))


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="divisible"):
        EncoderConfig(vocab_size=20, hidden_size=8, heads=3)
