"""Tests of masked target prediction: what may change by hand, shares in large batches."""

import pytest
import torch

from training.data.batching import IGNORED
from training.data.masked_targets import masked_targets
from training.data.pair_batching import PairBatch, PairBatches

MASK, END, VOCABULARY = 1, 3, 1000
X = IGNORED


def _batch(targets: list[list[int]]) -> PairBatch:
    """Targets of equal lengths, in their order."""
    (batch,) = PairBatches([([7], target) for target in targets], end_id=END, batch_tokens=10**6).epoch(0)
    return batch


def test_all_tokens_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draws below 0.8 mask, those of at least 0.9 replace, others keep; padding is no target."""
    draws = torch.tensor([[0.0, 0.89, 0.0], [0.79, 0.8, 0.9]])
    monkeypatch.setattr(torch, "rand", lambda *_, **__: draws.clone())
    monkeypatch.setattr(torch, "randint", lambda *_, **__: torch.tensor([[14, 15, 16], [11, 12, 13]]))
    (batch,) = PairBatches([([7], [5]), ([7], [8, 9])], end_id=END, batch_tokens=99).epoch(0)
    found = masked_targets(batch, 1.0, mask_id=MASK, vocab_size=VOCABULARY)
    assert found.inputs.tolist() == [[END, MASK, END, END], [END, MASK, 9, 13]]
    assert found.targets.tolist() == [[X, 5, END, X], [X, 8, 9, END]]
    assert found.source is batch.source


@pytest.mark.parametrize(("share", "count"), [(0.7, 7), (0.74, 7), (0.76, 8), (1.0, 10), (0.01, 1)])
def test_a_share_of_each_target_is_predicted(share: float, count: int) -> None:
    """Targets of 10 tokens with their ends; the share is rounded, to one at least."""
    batch = _batch([[*range(20, 29)]] * 50)
    found = masked_targets(batch, share, mask_id=MASK, vocab_size=VOCABULARY)
    assert set((found.targets != IGNORED).sum(dim=1).tolist()) == {count}
    tokens = torch.cat([batch.inputs[:, :1], batch.targets], dim=1)
    chosen = found.targets != IGNORED
    assert torch.equal(found.targets[chosen], tokens[chosen])
    assert torch.equal(found.inputs[~chosen], tokens[~chosen])
    assert not chosen[:, 0].any()


def test_chosen_tokens_are_masked_replaced_or_kept_and_all_are_as_likely() -> None:
    torch.manual_seed(0)
    batch = _batch([[*range(20, 29)]] * 4000)
    found = masked_targets(batch, 0.7, mask_id=MASK, vocab_size=VOCABULARY)
    chosen = found.targets != IGNORED
    masked, kept = found.inputs[chosen] == MASK, found.inputs[chosen] == found.targets[chosen]
    assert float(masked.float().mean()) == pytest.approx(0.8, abs=0.01)
    assert float(kept.float().mean()) == pytest.approx(0.1, abs=0.01)
    assert len(found.inputs[chosen][~masked & ~kept].unique()) > 900
    assert (chosen[:, 1:].float().mean(dim=0) - 0.7).abs().max() < 0.03


def test_the_generator_decides() -> None:
    def drawn() -> PairBatch:
        return masked_targets(_batch([[*range(20, 29)]] * 5), 0.7, mask_id=MASK, vocab_size=VOCABULARY)

    state = torch.get_rng_state()
    first, other = drawn(), drawn()
    torch.set_rng_state(state)
    again = drawn()
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(first.inputs, other.inputs)
