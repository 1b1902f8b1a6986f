"""Tests of the Transformer: sublayers by hand, then what no implementation may get wrong.

Shapes: `B` sentences, `S` source tokens, `T` target tokens, `d` hidden size, `H` heads.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.networks.transformer import Attention, Norm, Transformer, padding_mask, sinusoidal_positions

NORMS: tuple[Norm, ...] = ("pre", "post")


def _transformer(norm: Norm = "pre", **changes: int) -> Transformer:
    """Two layers each, no dropout; biases and norms are not what they start as."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "inner_size": 12, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, **changes}
    transformer = Transformer(**sizes, dropout=0.0, norm=norm)
    with torch.no_grad():
        for parameter in transformer.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return transformer.eval()


def _decoded(transformer: Transformer, source: Tensor, mask: Tensor | None, target: Tensor) -> Tensor:
    hidden, _ = transformer.decode(target, transformer.remember(transformer.encode(source, mask)), mask)
    return hidden


# ---- positions and masks ----------------------------------------------------------------------------------


def test_positions_by_the_formula() -> None:
    """Section 3.5 with the wavelengths spread from 2 pi to 10,000 * 2 pi, both included."""
    positions = sinusoidal_positions(30, 6)
    assert positions.shape == (30, 6)
    for place in (0, 1, 7, 29):
        angles = [place / 10_000 ** (i / 2) for i in range(3)]
        expected = [*map(math.sin, angles), *map(math.cos, angles)]
        assert positions[place].tolist() == pytest.approx(expected, abs=1e-5)


def test_positions_of_the_smallest_vectors() -> None:
    assert sinusoidal_positions(2, 2).tolist() == [[0, 1], pytest.approx([math.sin(1), math.cos(1)])]


def test_no_two_positions_are_equal() -> None:
    positions = sinusoidal_positions(1024, 32)
    distances = torch.cdist(positions, positions) + 9 * torch.eye(1024)
    assert distances.min() > 0.1


def test_padding_mask_by_hand() -> None:
    mask = padding_mask(torch.tensor([3, 1]), 4)
    assert mask.shape == (2, 1, 1, 4)
    assert mask[:, 0, 0].tolist() == [[True, True, True, False], [True, False, False, False]]


# ---- attention --------------------------------------------------------------------------------------------


def _set(linear: nn.Linear, weight: list[list[float]]) -> None:
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(weight))
        linear.bias.zero_()


def test_attention_by_hand() -> None:
    """One head of size 2 that copies its inputs: scores x . y / sqrt 2, of which the softmax mixes the inputs."""
    attention, same = Attention(2, 1), [[1.0, 0.0], [0.0, 1.0]]
    _set(attention.query, same)
    _set(attention.output, same)
    _set(attention.key_value, same + same)
    inputs = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
    first = 1 / (1 + math.exp(-4 / math.sqrt(2)))  # scores 4 and 0
    second = 1 / (1 + math.exp(1 / math.sqrt(2)))  # scores 0 and 1
    outputs = attention(inputs, attention.keys_values(inputs), None)
    assert outputs[0, 0].tolist() == pytest.approx([2 * first, 1 - first], abs=1e-6)
    assert outputs[0, 1].tolist() == pytest.approx([2 * second, 1 - second], abs=1e-6)
    causal = attention(inputs, attention.keys_values(inputs), None, causal=True)
    assert causal[0, 0].tolist() == [2, 0]
    assert causal[0, 1].tolist() == outputs[0, 1].tolist()


def test_attention_is_torch_s_multi_head_attention() -> None:
    torch.manual_seed(0)
    attention, reference = Attention(8, 4), nn.MultiheadAttention(8, 4, batch_first=True)
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([attention.query.weight, attention.key_value.weight]))
        reference.in_proj_bias.copy_(torch.cat([attention.query.bias, attention.key_value.bias]))
        reference.out_proj.load_state_dict(attention.output.state_dict())
    inputs, others, lengths = torch.randn(3, 5, 8), torch.randn(3, 6, 8), torch.tensor([6, 2, 4])
    mask = padding_mask(lengths, 6)
    expected, _ = reference(inputs, others, others, key_padding_mask=~mask[:, 0, 0], need_weights=False)
    torch.testing.assert_close(attention(inputs, attention.keys_values(others), mask), expected)


def test_attention_under_autocast_is_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Projections are of bfloat16, scores are not; the result agrees with float32 to the precision of bfloat16."""
    torch.manual_seed(0)
    attention, inputs, kinds = Attention(8, 2).eval(), torch.randn(3, 5, 8), []
    original = functional.scaled_dot_product_attention

    def attend(query: Tensor, keys: Tensor, values: Tensor, **options: Any) -> Tensor:
        kinds.append({query.dtype, keys.dtype, values.dtype})
        return original(query, keys, values, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", attend)
    mask = padding_mask(torch.tensor([5, 2, 4]), 5)
    expected = attention(inputs, attention.keys_values(inputs), mask)
    with torch.autocast("cpu", torch.bfloat16):
        keys_values = attention.keys_values(inputs)
        result = attention(inputs, keys_values, mask)
    assert {each.dtype for each in keys_values} == {torch.bfloat16}
    assert kinds == [{torch.float32}] * 2
    torch.testing.assert_close(result.float(), expected, rtol=0.02, atol=0.02)


# ---- layers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
def test_a_layer_of_zeros_shows_where_its_norms_stand(norm: Norm) -> None:
    """Sublayers that add nothing: pre-norm leaves the inputs alone up to the last norm, post-norm norms them twice."""
    transformer = Transformer(4, 4, 1, 1, 1, dropout=0.0, norm=norm)
    with torch.no_grad():
        for module in transformer.modules():
            if isinstance(module, nn.Linear):
                module.weight.zero_()
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(2.0)
    source = torch.tensor([[[1.0, 2.0, 3.0, 6.0]]])
    summed = 2 * source + sinusoidal_positions(1, 4)  # sqrt d is 2
    once = 2 * functional.layer_norm(summed, (4,))
    twice = 2 * functional.layer_norm(once, (4,))
    torch.testing.assert_close(transformer.encode(source, None), once if norm == "pre" else twice)
    decoded = _decoded(transformer, source, None, source)
    thrice = 2 * functional.layer_norm(twice, (4,))
    torch.testing.assert_close(decoded, once if norm == "pre" else thrice)


@pytest.mark.parametrize("norm", NORMS)
def test_the_transformer_is_torch_s(norm: Norm) -> None:
    """`nn.TransformerEncoder` and `nn.TransformerDecoder` with the same weights."""
    transformer = _transformer(norm)
    pre = norm == "pre"
    encoder_layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=pre)
    decoder_layer = nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=pre)
    encoder = nn.TransformerEncoder(encoder_layer, 2, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, 2)
    for ours, theirs in ((transformer.encoder, encoder), (transformer.decoder, decoder)):
        for layer, reference in zip(ours, theirs.layers, strict=True):
            _copy_layer(layer, reference)
    source, target, lengths = torch.randn(3, 5, 8), torch.randn(3, 4, 8), torch.tensor([5, 2, 4])
    positions, padded = sinusoidal_positions(5, 8), ~padding_mask(lengths, 5)[:, 0, 0]
    with torch.no_grad():
        memory = encoder(source * math.sqrt(8) + positions, src_key_padding_mask=padded)
        memory = transformer.encoder_norm(memory)
        expected = decoder(
            target * math.sqrt(8) + positions[:4],
            memory,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(4),
            tgt_is_causal=True,
            memory_key_padding_mask=padded,
        )
        expected = transformer.decoder_norm(expected)
        torch.testing.assert_close(_decoded(transformer, source, padding_mask(lengths, 5), target), expected)


def _copy_attention(attention: Attention, reference: nn.MultiheadAttention) -> None:
    reference.in_proj_weight.copy_(torch.cat([attention.query.weight, attention.key_value.weight]))
    reference.in_proj_bias.copy_(torch.cat([attention.query.bias, attention.key_value.bias]))
    reference.out_proj.load_state_dict(attention.output.state_dict())


@torch.no_grad()
def _copy_layer(layer: nn.Module, reference: nn.Module) -> None:
    names = ["attention"] if hasattr(layer, "attention") else ["self_attention", "cross_attention"]
    for name, theirs in zip(names, ("self_attn", "multihead_attn"), strict=False):
        _copy_attention(getattr(layer, name), getattr(reference, theirs))
    reference.linear1.load_state_dict(layer.feed_forward.inner.state_dict())  # type: ignore[union-attr]
    reference.linear2.load_state_dict(layer.feed_forward.outer.state_dict())  # type: ignore[union-attr]
    for index, norm in enumerate(layer.norms):  # type: ignore[arg-type]
        getattr(reference, f"norm{index + 1}").load_state_dict(norm.state_dict())


# ---- what tokens may see ----------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
def test_a_later_target_token_changes_nothing_before(norm: Norm) -> None:
    transformer, source, target = _transformer(norm), torch.randn(2, 5, 8), torch.randn(2, 6, 8)
    changed = target.clone()
    changed[:, 4] = torch.randn(2, 8)
    before, after = (_decoded(transformer, source, None, each) for each in (target, changed))
    assert torch.equal(before[:, :4], after[:, :4])
    assert ((before - after)[:, 4:].abs().amax(-1) > 1e-3).all()


@pytest.mark.parametrize("norm", NORMS)
def test_every_source_token_is_seen_by_every_target_token(norm: Norm) -> None:
    transformer, source, target = _transformer(norm), torch.randn(1, 5, 8), torch.randn(1, 3, 8)
    plain = _decoded(transformer, source, None, target)
    for place in range(5):
        changed = source.clone()
        changed[:, place] = torch.randn(1, 8)
        assert ((_decoded(transformer, changed, None, target) - plain).abs().amax(-1) > 1e-5).all()


@pytest.mark.parametrize("norm", NORMS)
def test_padding_changes_nothing(norm: Norm) -> None:
    """Sentences of 3 and 5 tokens, alone and together; what stands in the padding does not matter."""
    transformer, target = _transformer(norm), torch.randn(2, 4, 8)
    source, lengths = torch.randn(2, 5, 8), torch.tensor([3, 5])
    source[0, 3:] = 1e3
    together = _decoded(transformer, source, padding_mask(lengths, 5), target)
    for row, length in enumerate((3, 5)):
        alone = _decoded(transformer, source[row : row + 1, :length], None, target[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone)


@pytest.mark.parametrize("norm", NORMS)
def test_step_by_step_equals_the_whole_sentence(norm: Norm) -> None:
    transformer, source, target = _transformer(norm), torch.randn(3, 5, 8), torch.randn(3, 7, 8)
    mask = padding_mask(torch.tensor([5, 1, 3]), 5)
    memory = transformer.remember(transformer.encode(source, mask))
    whole, cache = transformer.decode(target, memory, mask)
    past, steps = None, []
    for step in range(7):
        hidden, past = transformer.decode(target[:, step : step + 1], memory, mask, past)
        assert [keys.shape for keys, _ in past] == [(3, 2, step + 1, 4)] * 2
        steps.append(hidden)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)
    torch.testing.assert_close(past, cache)


def test_words_in_another_order_are_another_sentence() -> None:
    transformer, source, target = _transformer(), torch.randn(1, 4, 8), torch.randn(1, 2, 8)
    swapped = source[:, [1, 0, 2, 3]]
    difference = _decoded(transformer, source, None, target) - _decoded(transformer, swapped, None, target)
    assert difference.abs().max() > 1e-3


# ---- parameters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hidden_size", "heads"), [(8, 3), (9, 3), (6, 4)])
def test_sizes_that_do_not_fit_are_refused(hidden_size: int, heads: int) -> None:
    message = f"hidden_size must be even and divisible by heads, not {hidden_size} and {heads}"
    with pytest.raises(ValueError, match=message):
        Transformer(hidden_size, 8, heads, 1, 1)


def test_dropout_is_on_vectors_and_sublayers_in_training_only() -> None:
    transformer = Transformer(8, 8, 2, 1, 1, dropout=0.5)
    source = torch.randn(1, 3, 8)
    assert not torch.equal(transformer.encode(source, None), transformer.encode(source, None))
    transformer.eval()
    assert torch.equal(transformer.encode(source, None), transformer.encode(source, None))


def test_positions_are_no_parameters_and_in_no_checkpoint() -> None:
    transformer = _transformer()
    assert not any("positions" in name for name in transformer.state_dict())
    assert transformer.positions.shape == (1024, 8)
    assert not transformer.positions.requires_grad


def test_biases_start_at_zero() -> None:
    transformer = Transformer(8, 8, 2, 1, 1)
    linears = [module for module in transformer.modules() if isinstance(module, nn.Linear)]
    assert len(linears) == 3 * 3 + 2 * 2  # three attentions, two feed-forward networks
    assert all(not linear.bias.any() and linear.weight.abs().max() <= 1 for linear in linears)
