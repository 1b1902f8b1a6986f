"""Output layers: kernels, their mixtures, sparse-softmax, and the losses they are trained with."""

from training.softmax.kernels import KERNELS, Kernel, build_kernel
from training.softmax.mixture import NAMED_MIXTURES, GeneralizedSoftmax
from training.softmax.sparse import sparse_softmax, sparse_softmax_cross_entropy, sparse_softmax_loss

__all__ = [
    "KERNELS",
    "NAMED_MIXTURES",
    "GeneralizedSoftmax",
    "Kernel",
    "build_kernel",
    "sparse_softmax",
    "sparse_softmax_cross_entropy",
    "sparse_softmax_loss",
]
