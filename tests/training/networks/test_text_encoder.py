"""Tests of text encoders; `test_hugging_face.py` has those of pretrained weights."""

import pytest
import torch

from tests.training.networks.golden import bert
from training.networks.text_encoder import EncoderConfig, TextEncoder

BERT = EncoderConfig(vocab_size=20, hidden_size=8, inner_size=16, heads=2, layers=2, positions=12)
DEBERTA = BERT.model_copy(update={"position_buckets": 4})


@pytest.mark.parametrize("config", [BERT, DEBERTA])
def test_vectors_do_not_depend_on_padding_or_neighbours(config: EncoderConfig) -> None:
    torch.manual_seed(0)
    encoder = TextEncoder(config).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.5)
        together = encoder(bert.TOKENS, bert.LENGTHS)
        alone = encoder(bert.TOKENS[1:, :3], bert.LENGTHS[1:])
    torch.testing.assert_close(together[1:, :3], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sizes", [BERT, DEBERTA])
def test_dropout_of_attention_weights_is_in_training_only(sizes: EncoderConfig) -> None:
    torch.manual_seed(0)
    config = sizes.model_copy(update={"dropout": 0.0, "attention_dropout": 0.5})
    encoder = TextEncoder(config)
    with torch.no_grad():
        first, second = encoder(bert.TOKENS, bert.LENGTHS), encoder(bert.TOKENS, bert.LENGTHS)
        assert not torch.equal(first, second)
        encoder.eval()
        plain = TextEncoder(config.model_copy(update={"attention_dropout": 0.0})).eval()
        plain.load_state_dict(encoder.state_dict())
        torch.testing.assert_close(encoder(bert.TOKENS, bert.LENGTHS), plain(bert.TOKENS, bert.LENGTHS))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_weight_of_disentangled_attention_learns(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    encoder = TextEncoder(DEBERTA)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        hidden = encoder(bert.TOKENS, bert.LENGTHS)
    (hidden[0].float() ** 3).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_the_order_of_tokens_counts_without_vectors_of_positions() -> None:
    torch.manual_seed(0)
    encoder = TextEncoder(DEBERTA).eval()
    assert not hasattr(encoder, "positions")
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.5)
        one, other = encoder(torch.tensor([[3, 4, 5], [3, 5, 4]]), torch.tensor([3, 3]))
    assert (one[0] - other[0]).abs().max() > 1e-3


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="divisible"):
        EncoderConfig(vocab_size=20, hidden_size=8, heads=3)
