"""`export_bundle`: a classifier of one's own becomes a bundle, which computes the same and says what its head is.

Shapes: `B` texts, `T` tokens, `C` classes.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn

from models.store import load_bundle
from training.importing.errors import ImportRefused
from training.importing.module import export_bundle
from training.softmax import GeneralizedSoftmax

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "where", "is", "my", "parcel", "cancel", "order", "please", "the"]
TEXTS = ["where is my parcel", "please cancel the order", "the " * 60]
LABELS = [f"label {number}" for number in range(30)]
Options = dict[str, Any]


class Bag(nn.Module):
    """Mean word vector, and a head."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.words, self.drop, self.head = nn.Embedding(len(WORDS), 8), nn.Dropout(0.5), head

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        kept = mask[:, :, None].float()
        mean = (self.words(tokens) * kept).sum(1) / kept.sum(1)
        return self.head(torch.tanh(self.drop(mean)))  # type: ignore[no-any-return]


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    frame = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=frame)
    return tokenizer


def _export(module: nn.Module, tmp_path: Path, **changes: Any) -> Path:
    options: Options = {"name": "mine", "licence": "MIT", "description": "My own.", "max_tokens": 50, **changes}
    labels = options.pop("labels", LABELS)
    return export_bundle(module, options.pop("tokenizer", _tokenizer()), labels, output=tmp_path, **options).path


@pytest.mark.parametrize(
    ("head", "described"),
    [
        ({"kernels": "lin, pow", "bias": True}, {"kernels": ["lin", "pow"], "bias": True}),
        ({"kernels": "log", "sparse_k": 5}, {"kernels": ["log"], "sparse_k": 5}),
        ({"kernels": "2*hpb", "untied": 2}, {"kernels": ["hpb", "hpb"]}),
        ({"kernels": "pow", "alpha": 1.5}, {"kernels": ["pow"], "alpha": 1.5}),
        ({"kernels": "lin", "softcap": 3.0}, {"kernels": ["lin"], "softcap": 3.0}),
        (None, {"kernels": ["lin"], "bias": True}),
    ],
    ids=str,
)
def test_the_bundle_is_the_module(head: Options | None, described: Options, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(8, len(LABELS)) if head is None else GeneralizedSoftmax(len(LABELS), 8, **head)
    module = Bag(layer)
    path = _export(module, tmp_path)
    assert module.training
    model = load_bundle(path)
    softmax = model.manifest.softmax
    others = {"bias": False, "sparse_k": None, "alpha": 1.0, "softcap": None}
    found = {
        "kernels": [kernel.name for kernel in softmax.kernels],
        **{name: getattr(softmax, name) for name in others},
    }
    assert found == {**others, **described}
    module.eval()
    for text, result in zip(TEXTS, model.classify(TEXTS, 3, truncate=True), strict=True):
        encoded = _tokenizer().encode(text).ids
        tokens = torch.tensor([encoded if len(encoded) <= 50 else [*encoded[:49], 3]])
        with torch.no_grad():
            log_prob = torch.log_softmax(module(tokens, torch.ones_like(tokens)), dim=-1)[0]
        best = log_prob.topk(3)
        assert [each.label for each in result.labels] == [LABELS[index] for index in best.indices]
        np.testing.assert_allclose([each.log_probability for each in result.labels], best.values, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": LABELS[:-1]}, r"\[30\] scores of a text, there are 29 labels"),
        ({"labels": [*LABELS[:-1], LABELS[0]]}, "a label twice"),
        ({"tokenizer": str.split}, "is no tokenizer"),
        ({"max_tokens": 2}, "at least 3"),
    ],
    ids=str,
)
def test_what_is_refused(changes: Options, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=message):
        _export(Bag(nn.Linear(8, 30)), tmp_path, **changes)
    assert not any(tmp_path.iterdir())


class Failing(nn.Module):
    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        raise RuntimeError("out of luck")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Failing(), "out of luck"),
        (Bag(nn.Sequential(GeneralizedSoftmax(8, 8), GeneralizedSoftmax(30, 8))), "2 layers"),
    ],
    ids=["fails", "two heads"],
)
def test_modules_that_cannot_become_a_bundle(module: nn.Module, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=message):
        _export(module, tmp_path)


def test_a_version_is_not_replaced_by_accident(tmp_path: Path) -> None:
    module = Bag(nn.Linear(8, 30))
    _export(module, tmp_path)
    with pytest.raises(FileExistsError):
        _export(module, tmp_path)
    _export(module, tmp_path, force=True)


def test_int8(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Bag(GeneralizedSoftmax(30, 8, "log"))
    module.words = nn.Sequential(module.words, nn.Linear(8, 512), nn.Linear(512, 8))  # type: ignore[assignment]
    path = _export(module, tmp_path, quantize="int8")
    quantization = load_bundle(path).manifest.quantization
    assert quantization is not None
    assert quantization.kind == "int8-static"
