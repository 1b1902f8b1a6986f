"""Classifiers of images: pixels, an encoder, and an output layer.

Shapes: `B` images, `S` height and width, `d` size of an image's vector.
"""

import torch
from torch import Tensor
from torch.nn import functional

from training.networks.image_encoder import ImageEncoder
from training.networks.softmax_model import SoftmaxModel
from training.softmax import GeneralizedSoftmax

__all__ = ["ImageClassifier"]

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's red, green and blue."""


class ImageClassifier(SoftmaxModel):
    """Computes an image's vector from 8 bits a colour."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, encoder: ImageEncoder, output_layer: GeneralizedSoftmax, scale: int = 1) -> None:
        """Images are enlarged by `scale` first: pretrained encoders know larger ones."""
        super().__init__()
        self.encoder = encoder
        self.output_layer = output_layer
        self.scale = scale
        self.register_buffer("mean", 255 * torch.tensor(_MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", 255 * torch.tensor(_DEVIATION)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, S, S, 3]`, uint8 -> `[B, d]`."""
        pixels = (images.permute(0, 3, 1, 2).float() - self.mean) / self.deviation
        if self.scale > 1:
            pixels = functional.interpolate(pixels, scale_factor=float(self.scale), mode="bilinear")
        return self.encoder(pixels)
