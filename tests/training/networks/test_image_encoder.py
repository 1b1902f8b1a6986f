"""Tests of encoders of images: numbers of the published implementation, then what cannot be loaded."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.networks.golden import efficientnet
from training.networks.image_encoder import DenseNet, EfficientNetLite0, load_efficientnet_lite0

GOLDEN = json.loads(efficientnet.FILE.read_text(encoding="utf-8"))


def _published() -> dict[str, Tensor]:
    return {
        name: efficientnet.weight(name, i, torch.Size(shape))
        for i, (name, shape) in enumerate(GOLDEN["shapes"].items())
    }


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "lite0.pth"
    torch.save(_published(), path)
    return path


@pytest.mark.parametrize("size", efficientnet.SIZES, ids=str)
def test_vectors_are_those_of_the_published_implementation(weights: Path, size: tuple[int, int]) -> None:
    with torch.no_grad():
        vectors = load_efficientnet_lite0(weights).eval()(efficientnet.images(size))
    expected = torch.tensor(GOLDEN["vectors"]["x".join(map(str, size))])
    assert vectors.shape == (2, EfficientNetLite0.hidden_size)
    assert expected.std() > 0.01
    torch.testing.assert_close(vectors[:, ::40], expected, rtol=1e-4, atol=1e-5)


def test_blocks_are_left_out_in_training_only() -> None:
    torch.manual_seed(0)
    encoder = EfficientNetLite0(dropout=0.0, drop_path=0.9)
    encoder.requires_grad_(False)
    images = torch.randn(4, 3, 32, 32)
    assert torch.equal(encoder.eval()(images), encoder(images))
    for module in encoder.modules():  # statistics of the batch would differ too
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    encoder.blocks.train()
    for module in encoder.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    assert not torch.equal(encoder(images), encoder(images))


@pytest.mark.parametrize("content", [{"_conv_stem.weight": torch.zeros(1)}, {"other": torch.zeros(1)}])
def test_other_weights_are_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match="does not hold the weights"):
        load_efficientnet_lite0(tmp_path / "weights.pth")


class _Malicious:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("run!",))


def test_nothing_in_a_file_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(_Malicious(), tmp_path / "weights.pth")
    with pytest.raises(ValueError, match="not a file of weights"):
        load_efficientnet_lite0(tmp_path / "weights.pth")
    (tmp_path / "weights.pth").write_bytes(b"")
    with pytest.raises(ValueError, match="not a file of weights"):
        load_efficientnet_lite0(tmp_path / "weights.pth")
    assert capsys.readouterr().out == ""


def test_dense_layers_keep_what_they_read() -> None:
    torch.manual_seed(0)
    encoder = DenseNet(growth=4, layers=(2, 3)).eval()
    # 8 channels, 2 layers of 4 more, half of them, 3 layers of 4 more.
    assert encoder.hidden_size == (8 + 2 * 4) // 2 + 3 * 4
    vectors = encoder(torch.randn(2, 3, 16, 16))
    assert vectors.shape == (2, encoder.hidden_size)
    images = torch.randn(1, 8, 5, 5)
    assert torch.equal(encoder.layers[1](images)[:, :8], images)


def test_the_papers_smallest_network_has_its_size() -> None:
    """Table 2: DenseNet-BC with growth 12 and depth 100, that is 16 layers a block, has 0.8M parameters."""
    encoder = DenseNet(growth=12, layers=(16, 16, 16))
    assert sum(parameter.numel() for parameter in encoder.parameters()) == pytest.approx(0.8e6, rel=0.07)
