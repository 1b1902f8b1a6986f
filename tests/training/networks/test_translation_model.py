"""Tests of the translation model: what its decoder starts from, and greedy search against a plain loop."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from training.networks.transformer import Transformer
from training.networks.translation_model import TranslationModel
from training.softmax import GeneralizedSoftmax

END = 1
MakeModel = Callable[..., TranslationModel]


@pytest.fixture
def make_model() -> MakeModel:
    """A model of 11 tokens that is sure of nothing in particular, but of different things after different words."""

    def make(kernels: str = "lin", seed: int = 0) -> TranslationModel:
        torch.manual_seed(seed)
        model = TranslationModel(Transformer(8, 12, 2, 1, 2, dropout=0.2), GeneralizedSoftmax(11, 8, kernels))
        with torch.no_grad():
            model.output_layer.weight.normal_()
            model.network.decoder_norm.weight.normal_()  # else a word is followed by itself
            for parameter in model.output_layer.others.parameters():
                parameter.normal_()
        return model.eval()

    return make


def test_word_vectors_are_rows_of_the_projection_matrix(make_model: MakeModel) -> None:
    model = make_model()
    assert model.source_vectors is model.target_vectors is model.output_layer.weight


def test_forward_is_encoder_and_decoder(make_model: MakeModel) -> None:
    model, source, target = make_model(), torch.tensor([[4, 5, 1]]), torch.tensor([[1, 7]])
    weight = model.output_layer.weight
    encoded = model.network.encode(functional.embedding(source, weight), None)
    expected, _ = model.network.decode(functional.embedding(target, weight), model.network.remember(encoded), None)
    torch.testing.assert_close(model(source, torch.tensor([3]), target), expected)


def test_padding_of_sources_changes_nothing(make_model: MakeModel) -> None:
    model, target = make_model(), torch.tensor([[1, 7, 8]])
    alone = model(torch.tensor([[4, 1]]), torch.tensor([2]), target)
    padded = model(torch.tensor([[4, 1, 9, 3], [4, 5, 6, 1]]), torch.tensor([2, 4]), target.expand(2, -1))
    torch.testing.assert_close(padded[:1], alone)


def _greedy(model: TranslationModel, source: Tensor, max_tokens: int) -> list[int]:
    """Reads the whole target again for each token."""
    words: list[int] = []
    while len(words) < max_tokens:
        hidden, context = model.read(source[None], torch.tensor([len(source)]), torch.tensor([[END, *words]]))
        word = int(model.output_layer.log_prob(hidden, history=context)[0, -1].argmax())
        if word == END:
            break
        words.append(word)
    return words


@pytest.mark.parametrize("kernels", ["lin", "pow", "lin, log", "lin, copy"])
def test_greedy_equals_a_plain_loop(kernels: str, make_model: MakeModel) -> None:
    """Sentences of several lengths together; some end early, some never."""
    lengths, found = torch.tensor([2, 5, 3, 4]), []
    for seed in range(8):
        model = make_model(kernels, seed)
        source = torch.randint(2, 11, (4, 5), generator=torch.Generator().manual_seed(seed))
        expected = [_greedy(model, source[row, : lengths[row]], 9) for row in range(4)]
        assert model.greedy(source, lengths, end_id=END, max_tokens=9) == expected
        found += [len(words) for words in expected]
    assert len(set(found)) > 1
    assert max(found) == 9


def test_greedy_of_a_model_that_only_ends(make_model: MakeModel) -> None:
    model = make_model()
    with torch.no_grad():
        model.network.decoder_norm.weight.zero_()
        model.network.decoder_norm.bias.copy_(10 * model.output_layer.weight[END])
        model.output_layer.weight.div_(model.output_layer.weight.norm(dim=1, keepdim=True))
    assert model.greedy(torch.tensor([[4, 1], [5, 1]]), torch.tensor([2, 2]), end_id=END, max_tokens=5) == [[], []]


def test_greedy_stops_when_every_sentence_has_ended(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second sentence ends two steps after the first, whose further tokens are not read."""
    model, words = make_model(), iter([[END, 4], [7, 5], [8, END], [END, END]])

    def log_prob(hidden: Tensor, history: None) -> Tensor:
        return functional.one_hot(torch.tensor(next(words)), 11).float()[:, None]

    monkeypatch.setattr(model.output_layer, "log_prob", log_prob)
    found = model.greedy(torch.tensor([[4, 1], [5, 1]]), torch.tensor([2, 2]), end_id=END, max_tokens=9)
    assert found == [[], [4, 5]]
    assert len(list(words)) == 1


def test_greedy_keeps_no_gradients(make_model: MakeModel) -> None:
    model = make_model()
    model.greedy(torch.tensor([[4, 1]]), torch.tensor([2]), end_id=END, max_tokens=3)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_copying_needs_a_shared_vocabulary(make_model: MakeModel) -> None:
    model = make_model("lin, copy")
    for name in ("source_vectors", "target_vectors"):
        with pytest.raises(ValueError, match=r"output_layer\.kernels: copy needs a vocabulary that .* source_vectors"):
            TranslationModel(model.network, model.output_layer, **{name: torch.nn.Parameter(torch.zeros(5, 8))})
