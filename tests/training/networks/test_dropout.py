import pytest
import torch

from training.networks.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(400, 301), (7, 3, 5003)])
def test_drops_the_given_fraction_and_keeps_the_mean(p: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    outputs = Dropout(p)(torch.ones(shape))
    dropped = (outputs == 0).float().mean().item()
    assert dropped == pytest.approx(p, abs=5 * (p * (1 - p) / outputs.numel()) ** 0.5)
    kept = outputs[outputs != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-4, atol=0)


def test_neighbouring_elements_are_independent() -> None:
    torch.manual_seed(2)
    kept = (Dropout(0.5)(torch.ones(200_003)) != 0).float() - 0.5
    for distance in (1, 2, 3, 4, 8):
        correlation = 4 * (kept[:-distance] * kept[distance:]).mean().item()
        assert abs(correlation) < 5 / 200_000**0.5


def test_gradients_pass_where_inputs_passed() -> None:
    torch.manual_seed(3)
    inputs = torch.randn(33, 5, dtype=torch.float64, requires_grad=True)
    outputs = Dropout(0.3)(inputs)
    outputs.sum().backward()
    torch.testing.assert_close(inputs.grad, outputs.detach() / inputs.detach())


def test_the_generator_decides() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return Dropout(0.4)(torch.ones(999))

    assert torch.equal(draw(4), draw(4))
    assert not torch.equal(draw(4), draw(5))


def test_nothing_is_dropped_in_evaluation_or_with_probability_0_and_everything_with_1() -> None:
    inputs = torch.randn(5, 3)
    assert torch.equal(Dropout(0.5).eval()(inputs), inputs)
    assert torch.equal(Dropout(0.0)(inputs), inputs)
    assert torch.equal(Dropout(1.0)(inputs), torch.zeros(5, 3))


def test_strided_and_low_precision_inputs() -> None:
    outputs = Dropout(0.5)(torch.ones(64, 32, dtype=torch.bfloat16).T)
    assert outputs.shape == (32, 64)
    assert outputs.dtype == torch.bfloat16
    assert set(outputs.unique().tolist()) == {0.0, 2.0}
