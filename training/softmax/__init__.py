"""Output layers: kernels, their mixtures, sparse-softmax, and the losses they are trained with.

Read `reference` first: the layer and its loss as the papers write them. The other modules compute the same from less:

* `kernels`, `directional`, `kernel`: scores from inner products and terms of a class or position, never `[N, V, d]`;
* `components`: distributions that are not kernels, such as a cache of the words before or a copy of the source;
* `mixture`: the layer as a module, `sparse`: the k best classes, `alpha_entmax`: classes above a threshold;
* `loss`, `margin`, `passes`, `functional`: the loss from a chunk of positions at a time, never `[N, V]`;
* `parallel`: the loss of classes that are shared between processes;
* `elementwise`: the kernels' derivatives, written out.
"""

from .alpha_entmax import entmax, entmax_loss
from .components import COMPONENTS, Component, History, Memory, Source
from .elementwise import plain_formulas
from .functional import kernel_cross_entropy
from .kernel import Kernel
from .kernels import KERNELS, PAPER_KERNELS, build_kernel
from .mixture import NAMED_MIXTURES, GeneralizedSoftmax
from .sparse import sparse_softmax, sparse_softmax_cross_entropy, sparse_softmax_loss

__all__ = [
    "COMPONENTS",
    "KERNELS",
    "NAMED_MIXTURES",
    "PAPER_KERNELS",
    "Component",
    "GeneralizedSoftmax",
    "History",
    "Kernel",
    "Memory",
    "Source",
    "build_kernel",
    "entmax",
    "entmax_loss",
    "kernel_cross_entropy",
    "plain_formulas",
    "sparse_softmax",
    "sparse_softmax_cross_entropy",
    "sparse_softmax_loss",
]
