"""Output layers: kernels, their mixtures and the losses they are trained with."""

from training.softmax.kernels import KERNELS, Kernel, build_kernel
from training.softmax.mixture import GeneralizedSoftmax

__all__ = ["KERNELS", "GeneralizedSoftmax", "Kernel", "build_kernel"]
