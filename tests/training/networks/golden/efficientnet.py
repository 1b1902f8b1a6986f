"""Writes efficientnet.json: what the published implementation computes with weights that follow a formula.

pip install --no-deps efficientnet-lite-pytorch && python -m tests.training.networks.golden.efficientnet
"""

import json
from pathlib import Path

import torch
from torch import Tensor

FILE = Path(__file__).parent / "efficientnet.json"
SIZES = ((64, 64), (33, 50))
"""Heights and widths: even ones, whose padding is uneven, and odd ones."""


def weight(name: str, number: int, shape: torch.Size) -> Tensor:
    """The tensor of that number: waves, scaled so that no layer's outputs vanish; variances are positive."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(0)
    waves = torch.sin(1.7 * torch.arange(shape.numel(), dtype=torch.float64) + number)
    if len(shape) == 4:
        waves = waves * 1.5 / (shape[1] * shape[2] * shape[3]) ** 0.5
    elif name.endswith(("running_var", "weight")):
        waves = 1 + 0.3 * waves
    else:
        waves = 0.3 * waves
    return waves.reshape(shape).float()


def images(size: tuple[int, int]) -> Tensor:
    """Two images."""
    count = 2 * 3 * size[0] * size[1]
    return torch.sin(0.37 * torch.arange(count, dtype=torch.float64)).reshape(2, 3, *size).float()


def main() -> None:
    from efficientnet_lite_pytorch import EfficientNet

    found = {}
    for size in SIZES:
        model = EfficientNet.from_name("efficientnet-lite0", image_size=size).eval()
        shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
        model.load_state_dict({name: weight(name, i, shape) for i, (name, shape) in enumerate(shapes.items())})
        with torch.no_grad():
            features = model.extract_features(images(size)).mean((2, 3))
        found["x".join(map(str, size))] = features[:, ::40].tolist()
    content = {"shapes": {name: list(shape) for name, shape in shapes.items()}, "vectors": found}
    FILE.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
