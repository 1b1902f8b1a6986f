"""Writes bert.json: what `transformers` computes for a small BERT whose weights follow a formula.

pip install transformers && python -m tests.training.networks.golden.bert
"""

import json
from pathlib import Path

import torch
from torch import Tensor

CONFIG = {
    "model_type": "bert",
    "vocab_size": 20,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
TOKENS = torch.tensor([[2, 7, 1, 19, 3], [2, 11, 3, 0, 0]])
LENGTHS = torch.tensor([5, 3])
FILE = Path(__file__).parent / "bert.json"


def weight(number: int, shape: torch.Size) -> Tensor:
    """The tensor of that number, in the order of their names: waves of an amplitude that lets every part matter."""
    steps = torch.arange(shape.numel(), dtype=torch.float64)
    return (0.6 * torch.sin(1.7 * steps + number) + 0.2 * torch.cos(0.37 * steps**1.5)).reshape(shape).float()


def main() -> None:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(**CONFIG), add_pooling_layer=False).eval()
    shapes = {name: tensor.shape for name, tensor in sorted(model.state_dict().items()) if "position_ids" not in name}
    model.load_state_dict({name: weight(i, shape) for i, (name, shape) in enumerate(shapes.items())})
    mask = torch.arange(TOKENS.shape[1]) < LENGTHS[:, None]
    with torch.no_grad():
        hidden = model(input_ids=TOKENS, attention_mask=mask.long()).last_hidden_state
    found = [hidden[row, :length].tolist() for row, length in enumerate(LENGTHS.tolist())]
    content = {"shapes": {name: list(shape) for name, shape in shapes.items()}, "hidden": found}
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
