"""Tests of the text generator: UniLM's attention against one pass over source and target, and steps against a pass."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from training.networks.generation_model import GenerationModel
from training.networks.text_encoder import EncoderConfig, TextEncoder
from training.softmax import GeneralizedSoftmax

MASK, START, END = 1, 2, 3
SOURCES = [[START, 5, 6, 7, 8, END], [START, 9, END]]
TARGETS = [[END, 10, 11, 4], [END, 12, 5, 6]]


@pytest.fixture(params=[None, MASK], ids=["next token", "mask token"])
def model(request: pytest.FixtureRequest) -> GenerationModel:
    """Two layers in float64 that are sure of nothing in particular."""
    torch.manual_seed(0)
    config = EncoderConfig(vocab_size=13, hidden_size=8, inner_size=12, heads=2, layers=2, positions=12, dropout=0.2)
    model = GenerationModel(TextEncoder(config), GeneralizedSoftmax(13, 8), request.param).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.7)
    return model


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    source = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in SOURCES], batch_first=True, padding_value=1)
    return source, torch.tensor([len(ids) for ids in SOURCES]), torch.tensor(TARGETS)


def _in_one_pass(model: GenerationModel, source: list[int], target: list[int]) -> Tensor:
    """Source and target as one text, with the mask of Dong et al. 2019, figure 1, on whole matrices of attention."""
    encoder, config, length = model.encoder, model.encoder.config, len(source)
    total, size = length + len(target), config.hidden_size // config.heads
    mask = torch.full((total, total), -torch.inf, dtype=torch.float64)
    mask[:, :length] = 0  # the source is seen by all,
    mask[length:, length:].triu_(1)  # the target by the tokens after it
    segments = torch.zeros(total, config.hidden_size, dtype=torch.float64)
    segments[length:] = model.target_segment
    hidden = encoder.norm(encoder.words(torch.tensor(source + target)) + encoder.positions[:total] + segments)
    for layer in model.encoder.encoder_layers():
        keys, values = layer.attention.key_value(hidden).chunk(2, dim=-1)
        query, heads = layer.attention.query(hidden), []
        for head in range(config.heads):
            part = slice(head * size, (head + 1) * size)
            weights = torch.softmax(query[:, part] @ keys[:, part].T / size**0.5 + mask, dim=-1)
            heads.append(weights @ values[:, part])
        hidden = layer.norms[0](hidden + layer.attention.output(torch.cat(heads, dim=-1)))
        hidden = layer.norms[1](hidden + layer.feed_forward.outer(functional.gelu(layer.feed_forward.inner(hidden))))
    return model.transform(hidden[length:])


def _next(model: GenerationModel, source: list[int], target: list[int]) -> Tensor:
    """The vector `[1, d]` that predicts the token after a target: the last one's, or a mask token's after it."""
    return _in_one_pass(model, source, target if model.mask_id is None else [*target, model.mask_id])[-1:]


def test_reading_and_writing_are_one_pass_with_the_mask_of_unilm(model: GenerationModel) -> None:
    hidden = model(*_inputs())
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        torch.testing.assert_close(hidden[row], _in_one_pass(model, source, target), atol=1e-12, rtol=0)


def test_steps_are_the_whole(model: GenerationModel) -> None:
    source, lengths, target = _inputs()
    memory, past, steps = model.encode(source, lengths), None, []
    for step in range(target.shape[1]):
        hidden, past = model.decode(target[:, step : step + 1], memory, lengths, past)
        steps.append(hidden)
    whole, _ = model.decode(target, memory, lengths)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-12, rtol=0)
    for row, (ids, words) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = torch.cat([_next(model, ids, words[: step + 1]) for step in range(len(words))])
        torch.testing.assert_close(whole[row], expected, atol=1e-12, rtol=0)


def test_mask_tokens_are_not_kept(model: GenerationModel) -> None:
    source, lengths, target = _inputs()
    _, past = model.decode(target, model.encode(source, lengths), lengths)
    assert {part.shape[2] for layer in past for part in layer} == {target.shape[1]}


def test_a_token_depends_on_the_whole_source_and_on_nothing_that_follows(model: GenerationModel) -> None:
    source, lengths, target = _inputs()
    before = model(source, lengths, target)
    other = source.clone()
    other[0, 4] = 12
    assert not torch.allclose(model(other, lengths, target)[0, 0], before[0, 0])
    later = target.clone()
    later[:, 2] = 7
    after = model(source, lengths, later)
    torch.testing.assert_close(after[:, :2], before[:, :2])
    assert not torch.allclose(after[:, 2:], before[:, 2:])


def test_greedy_search_takes_the_best_token_each_time(model: GenerationModel) -> None:
    source, lengths, _ = _inputs()
    found = model.greedy(source, lengths, end_id=END, max_tokens=5)
    for row, ids in enumerate(SOURCES):
        words: list[int] = []
        while len(words) < 5:
            word = int(model.output_layer.log_prob(_next(model, ids, [END, *words])).argmax())
            if word == END:
                break
            words.append(word)
        assert found[row] == words


def test_word_vectors_are_rows_of_the_projection_matrix_and_learn_from_both(model: GenerationModel) -> None:
    assert model.encoder.words.weight is model.output_layer.weight
    assert sum(parameter is model.output_layer.weight for parameter in model.parameters()) == 1
    source, lengths, target = _inputs()
    wanted, layer = torch.tensor([0, 0]), model.output_layer

    def gradient(hidden: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(layer.loss(hidden[:, -1], wanted), [layer.weight])
        return found

    whole = gradient(model(source, lengths, target))
    as_classes = gradient(model(source, lengths, target).detach())
    difference = (whole - as_classes).abs().amax(1)
    assert difference[5] > 1e-3  # a word of both sources,
    assert difference[1] < 1e-12  # and padding, which is not read
    (segment,) = torch.autograd.grad(model(source, lengths, target).sum(), [model.target_segment])
    assert segment.abs().max() > 0
