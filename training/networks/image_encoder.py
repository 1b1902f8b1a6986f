"""Encoders of images: EfficientNet-Lite0, whose ImageNet weights there are, and DenseNet from scratch.

Shapes: `B` images, `C` channels, `H` and `W` their height and width, `d` size of an image's vector.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.networks.dropout import Dropout
from training.networks.weight_files import read_weights

# Not torchvision's or timm's networks: with the CPU build of torch 2.13.0, pip installs torchvision 0.28.0, whose
# only wheel on PyPI is built for CUDA, so that importing it fails ("operator torchvision::nms does not exist"); newer
# ones need torch >= 2.14 and, from PyPI, several GB of CUDA libraries. timm requires torchvision.

__all__ = ["DenseNet", "EfficientNetLite0", "ImageEncoder", "load_efficientnet_lite0"]


class ImageEncoder(nn.Module):
    """Images `[B, 3, H, W]`, normalized, in; one vector for each, `[B, d]`, out."""

    __call__: Callable[..., Tensor]
    hidden_size: int


class _SameConv(nn.Conv2d):
    """Convolution padded as TensorFlow does with `SAME`: for even sizes more behind than before."""

    def forward(self, inputs: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        margins: list[int] = []
        for size in (inputs.shape[3], inputs.shape[2]):  # the last axis goes first
            missing = max(0, (-(-size // stride) - 1) * stride + kernel - size)
            margins += [missing // 2, missing - missing // 2]
        padded = functional.pad(inputs, margins) if any(margins) else inputs
        return functional.conv2d(padded, self.weight, None, self.stride, 0, 1, self.groups)


class _NormedConv(nn.Module):
    """Convolution, batch normalization and, except before a residual sum, ReLU6."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, *, groups: int = 1, active: bool = True
    ) -> None:
        super().__init__()
        self.conv = _SameConv(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
        self.active = active

    def forward(self, images: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.conv(images))
        return functional.relu6(normed) if self.active else normed


class _InvertedBottleneck(nn.Module):
    """Expansion, depthwise convolution and projection (Sandler et al. 2018), without squeeze and excitation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int, drop: float) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expand = _NormedConv(inputs, inner, 1) if expansion > 1 else nn.Identity()
        self.depthwise = _NormedConv(inner, inner, kernel, stride, groups=inner)
        self.project = _NormedConv(inner, outputs, 1, active=False)
        self.residual = stride == 1 and inputs == outputs
        self.drop = drop

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.project(self.depthwise(self.expand(images)))
        if not self.residual:
            return outputs
        if self.training and self.drop:  # stochastic depth (Huang et al. 2016): whole images at a time
            kept = torch.rand(len(images), 1, 1, 1, device=images.device) >= self.drop
            outputs = outputs * kept / (1 - self.drop)
        return images + outputs


_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Blocks, kernel size, stride of the first block, expansion and channels of each stage."""


class EfficientNetLite0(ImageEncoder):
    """EfficientNet-B0 (Tan and Le 2019) without squeeze and excitation and with ReLU6, for integer arithmetic."""

    hidden_size = 1280

    def __init__(self, *, dropout: float = 0.2, drop_path: float = 0.2) -> None:
        """`drop_path` times their place among all blocks, from 0 to 1, is how often residual blocks are left out."""
        super().__init__()
        self.stem = _NormedConv(3, 32, 3, 2)
        blocks: list[nn.Module] = []
        channels, count = 32, sum(stage[0] for stage in _STAGES)
        for repeats, kernel, stride, expansion, outputs in _STAGES:
            for index in range(repeats):
                drop = drop_path * len(blocks) / count
                step = stride if index == 0 else 1
                blocks.append(_InvertedBottleneck(channels, outputs, kernel, step, expansion, drop))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = _NormedConv(channels, self.hidden_size, 1)
        self.dropout = Dropout(dropout)

    def forward(self, images: Tensor) -> Tensor:
        return self.dropout(self.head(self.blocks(self.stem(images))).mean((2, 3)))


_PARTS: Mapping[str, str] = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
}
_BLOCK_PARTS: Mapping[str, str] = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}
"""Names in the published weights, and ours."""


def load_efficientnet_lite0(weights: Path) -> EfficientNetLite0:
    """Return the encoder with published ImageNet weights, a file that `torch.save` wrote; nothing in it is run.

    Raises `FileNotFoundError` where there is none and `ValueError` where it holds something else.
    """
    published = read_weights(weights)
    encoder = EfficientNetLite0()
    try:
        encoder.load_state_dict({_ours(name): value for name, value in published.items() if not name.startswith("_fc")})
    except (RuntimeError, KeyError) as error:
        raise ValueError(f"{weights} does not hold the weights of EfficientNet-Lite0: {error}") from error
    return encoder


def _ours(name: str) -> str:
    if (found := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)) is not None:
        return f"blocks.{found[1]}.{_BLOCK_PARTS[found[2]]}.{found[3]}"
    part, _, kind = name.partition(".")
    return f"{_PARTS[part]}.{kind}"


class _DenseLayer(nn.Module):
    """A bottleneck and a convolution whose outputs are joined with their inputs (section 3, DenseNet-BC)."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([images, self.layers(images)], dim=1)


class DenseNet(ImageEncoder):
    """DenseNet-BC (Huang et al. 2017) for small images: dense blocks, each at half the size of the one before."""

    def __init__(self, *, growth: int = 12, layers: Sequence[int] = (6, 6, 6), dropout: float = 0.0) -> None:
        """`growth` channels for each of the `layers` of a block; between blocks half of the channels are kept."""
        super().__init__()
        channels = 2 * growth
        parts: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
        for index, count in enumerate(layers):
            if index:
                parts += [
                    nn.BatchNorm2d(channels),
                    nn.ReLU(),
                    nn.Conv2d(channels, channels // 2, 1, bias=False),
                    nn.AvgPool2d(2),
                ]
                channels //= 2
            for _ in range(count):
                parts.append(_DenseLayer(channels, growth))
                channels += growth
        self.layers = nn.Sequential(*parts, nn.BatchNorm2d(channels), nn.ReLU())
        self.dropout = Dropout(dropout)
        self.hidden_size = channels
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, images: Tensor) -> Tensor:
        return self.dropout(self.layers(images).mean((2, 3)))
