"""Which component of a mixture carries which weight for which words (kernel paper, section 4.4).

Shapes: `N` positions, `V` words, `K` mixture components.

At a position with context vector h and target word t, a component's prior weight is `pi_k(h)`, and its responsibility
is the part of the target's probability that comes from it, `pi_k p_k(t|h) / sum_j pi_j p_j(t|h)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.data.batching import Batch, Batches
from training.search.analyses.tables import Rows
from training.softmax import GeneralizedSoftmax
from training.softmax.loss import target_scores
from training.tasks.evaluation import evaluate_batches
from training.tasks.language_model import LanguageModelTask

__all__ = ["Shares", "component_rows", "mixture_shares", "responsibilities", "top_words", "word_rows"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Sums over the positions of a text, by target word; float64."""

    kernels: Sequence[str]
    counts: Tensor
    """`[V]`"""
    priors: Tensor
    """`[V, K]`"""
    responsibilities: Tensor
    """`[V, K]`"""
    variances: Tensor
    """Variance of the prior weights over the components (kernel paper, eq. 14): `[V]`."""

    def mean_variance(self) -> float:
        """Return the mean variance of the prior weights over all positions; 0 for equal weights everywhere."""
        return float(self.variances.sum() / self.counts.sum())

    def frequent(self, min_count: int) -> list[int]:
        """Return the words seen at least `min_count` times, most frequent first."""
        order: list[int] = torch.argsort(self.counts, descending=True, stable=True).tolist()
        return [word for word in order if self.counts[word] >= min_count]


@torch.no_grad()
def mixture_shares(task: LanguageModelTask, batches: Batches[Batch]) -> Shares:
    """Return the weights of the components over a text, for a model in evaluation mode.

    Raises `ValueError` for a single kernel, which shares with none.
    """
    layer = task.model.output_layer
    kernels = [kernel.name for kernel in layer.components()]
    if layer.others:
        raise ValueError(f"{task.recipe.name} has components that are not kernels, which this analysis has no words of")
    if len(kernels) == 1:
        raise ValueError(
            f"{task.recipe.name} has the single kernel {kernels[0]!r}, so there is no mixture to look into"
        )
    counts, variances = torch.zeros(2, task.tokenizer.vocab_size, dtype=torch.float64)
    priors, parts = (counts.new_zeros(len(counts), len(kernels)) for _ in range(2))
    for _, (hidden, target) in evaluate_batches(task.model, batches, task.context_vectors):
        words = target.cpu()
        counts.index_add_(0, words, torch.ones_like(words, dtype=torch.float64))
        priors.index_add_(0, words, layer.mixture_weights(hidden).double().cpu())
        variances.index_add_(0, words, layer.mixture_variance(hidden).double().cpu())
        parts.index_add_(0, words, responsibilities(layer, hidden, target).double().cpu())
    return Shares(kernels=kernels, counts=counts, priors=priors, responsibilities=parts, variances=variances)


@torch.no_grad()
def responsibilities(layer: GeneralizedSoftmax, hidden: Tensor, target: Tensor) -> Tensor:
    """Return the share of each component in the targets' probability: `[N, d]`, `[N]` -> `[N, K]`.

    Of a sparse layer it is the part of what its loss maximizes, which a target outside the k best has too.
    """
    chosen, normalizers = target_scores(layer._parts(), hidden, target)
    return torch.softmax(layer.log_mixture_weights(hidden) + chosen - normalizers, dim=-1)


def component_rows(shares: Shares, task: LanguageModelTask, *, min_count: int, words: int) -> Rows:
    """Return a row for each component: its mean weights, and the words with its highest mean responsibility."""
    rows = Rows(["component", "kernel", "prior", "responsibility", "words it is most responsible for"])
    total = shares.counts.sum()
    prior, responsibility = (part.sum(0) / total for part in (shares.priors, shares.responsibilities))
    for k, kernel in enumerate(shares.kernels):
        best = top_words(shares, k, min_count=min_count, count=words)
        text = ", ".join(f"{task.tokenizer.word(word)} {share:.2g}" for word, share in best)
        rows.add([k + 1, kernel, float(prior[k]), float(responsibility[k]), text])
    return rows


def top_words(shares: Shares, component: int, *, min_count: int, count: int) -> list[tuple[int, float]]:
    """Return the words with the highest mean responsibility of a component, among those seen `min_count` times."""
    mean = {
        word: float(shares.responsibilities[word, component] / shares.counts[word])
        for word in shares.frequent(min_count)
    }
    return sorted(mean.items(), key=lambda item: -item[1])[:count]


def word_rows(shares: Shares, task: LanguageModelTask, *, min_count: int) -> Rows:
    """Return a row for each word that was seen `min_count` times: its mean weights."""
    labels = [f"{k + 1} {kernel}" for k, kernel in enumerate(shares.kernels)]
    columns = [f"{kind} {label}" for kind in ("prior", "responsibility") for label in labels]
    rows = Rows(["word", "count", *columns])
    for word in shares.frequent(min_count):
        means = torch.cat([shares.priors[word], shares.responsibilities[word]]) / shares.counts[word]
        rows.add([task.tokenizer.word(word), int(shares.counts[word]), *means.tolist()])
    return rows
