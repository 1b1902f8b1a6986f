"""Convert a translation model to CTranslate2's format: the same weights in another inference engine."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import Activation, TransformerSpec
from numpy.typing import NDArray
from torch import Tensor

from training.networks.translation_model import TranslationModel
from training.softmax import GeneralizedSoftmax

__all__ = ["END", "convert", "spelled"]

END = "</s>"


def spelled(tokens: list[int]) -> list[str]:
    """Return ids as the vocabulary of a converted model spells them."""
    return [str(token) for token in tokens]


def convert(model: TranslationModel, directory: Path, *, end_id: int, quantization: str | None) -> None:
    """Write the model to a directory; `quantization` as CTranslate2 names it, such as `int8`.

    Raises `ValueError` for an output layer that is not a linear one.
    """
    network = model.network
    spec = TransformerSpec.from_config(
        (len(network.encoder), len(network.decoder)),
        network.decoder_layers()[0].self_attention.heads,
        pre_norm=network.decoder_layers()[0].pre,
        activation=Activation.RELU,
    )
    embedding = model.output_layer.weight.detach().numpy()
    positions = network.positions.numpy()
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = embedding
    spec.encoder.position_encodings.encodings = spec.decoder.position_encodings.encodings = positions
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = True
    spec.decoder.projection.weight, spec.decoder.projection.bias = _projection(model.output_layer)
    _norm(spec.encoder.layer_norm, network.encoder_norm)
    _norm(spec.decoder.layer_norm, network.decoder_norm)
    for target, layer in zip(spec.encoder.layer, list[Any](network.encoder), strict=True):
        _self_attention(target.self_attention, layer.attention, layer.norms[0])
        _feed_forward(target.ffn, layer.feed_forward, layer.norms[1])
    for target, layer in zip(spec.decoder.layer, network.decoder_layers(), strict=True):
        _self_attention(target.self_attention, layer.self_attention, layer.norms[0])
        cross = target.attention
        _linear(cross.linear[0], layer.cross_attention.query)
        _linear(cross.linear[1], layer.cross_attention.key_value)
        _linear(cross.linear[2], layer.cross_attention.output)
        _norm(cross.layer_norm, layer.norms[1])
        _feed_forward(target.ffn, layer.feed_forward, layer.norms[2])
    vocabulary = spelled(list(range(len(embedding))))
    vocabulary[end_id] = END
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.bos_token = spec.config.eos_token = spec.config.decoder_start_token = END
    spec.config.unk_token = vocabulary[0]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=quantization)
    directory.mkdir(parents=True, exist_ok=True)
    spec.save(str(directory))
    assert json.loads((directory / "config.json").read_text())["decoder_start_token"] == END


def _projection(layer: GeneralizedSoftmax) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return weight and bias of the linear layer that has the same softmax."""
    if layer.others:
        raise ValueError("CTranslate2 has no component that copies: take a bundle of a kernel alone")
    (kernel,) = layer.components()
    weight = layer.weight.detach().double()
    if kernel.name == "lin":
        return weight.float().numpy(), np.zeros(len(weight), np.float32)
    if kernel.name == "pow" and kernel.hyperparameters == {"p": 2.0}:
        return (2 * weight).float().numpy(), -weight.square().sum(1).float().numpy()
    raise ValueError(f"kernel {kernel.name!r} is no linear layer")


def _self_attention(target: Any, attention: Any, norm: Any) -> None:
    joined, output = target.linear
    parts = (attention.query, attention.key_value)
    joined.weight = np.concatenate([_array(part.weight) for part in parts])
    joined.bias = np.concatenate([_array(part.bias) for part in parts])
    _linear(output, attention.output)
    _norm(target.layer_norm, norm)


def _feed_forward(target: Any, feed_forward: Any, norm: Any) -> None:
    _linear(target.linear_0, feed_forward.inner)
    _linear(target.linear_1, feed_forward.outer)
    _norm(target.layer_norm, norm)


def _linear(target: Any, linear: Any) -> None:
    target.weight, target.bias = _array(linear.weight), _array(linear.bias)


def _norm(target: Any, norm: Any) -> None:
    target.gamma, target.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().numpy()
    return array
