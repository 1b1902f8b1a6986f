"""Guided alignment: the loss of one head of cross-attention that is to align words (Garg et al. 2019, section 4.2).

Shapes: `B` sentences, `S` source tokens, `T` target tokens.
"""

from collections.abc import Sequence

from torch import Tensor

from training.data.entities import TextPair
from training.data.statistical_alignment import StatisticalAligner
from training.output import progress
from training.tasks.translation.settings import GuidedAlignment

__all__ = ["alignment_loss", "fitted_aligner"]


def alignment_loss(log_weights: Tensor, links: Tensor) -> Tensor:
    """Return the cross-entropy of attention given distributions over source positions, a scalar.

    `log_weights` are the logarithms of attention weights, both are `[B, T, S]`. Rows of `links` without a link are
    zeros; the mean is that of the others, and 0 where there is none.
    """
    linked = (links.sum(dim=2) > 0).sum()
    return -(links * log_weights).sum() / linked.clamp(min=1)


def fitted_aligner(settings: GuidedAlignment, pairs: Sequence[TextPair], *, quiet: bool) -> StatisticalAligner:
    """Return the aligner of training pairs; its progress is printed on standard error, unless `quiet`.

    Raises `ValueError` where no pair has words on both sides.
    """
    report = (lambda line: None) if quiet else progress.print
    try:
        return StatisticalAligner.fit(pairs, iterations=settings.iterations, report=report)
    except ValueError as error:
        raise ValueError(f"guided_alignment: {error}") from error
