"""Read the weights of a translation bundle back into a PyTorch model, dequantized where they are int8.

Shapes: `K` inputs and `N` outputs of a matrix product, `V` tokens, `d` hidden size.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper

from models.bundle.manifest import Manifest
from models.reading import load_manifest
from models.tasks.translation import TranslationConfig
from training.networks.transformer import Transformer
from training.networks.translation_model import TranslationModel
from training.softmax import GeneralizedSoftmax

__all__ = ["bundle_model"]

Weights = dict[str, NDArray[np.float32]]

_RENAMED = {
    "encode": {
        r"embedding": r"output_layer.weight",
        r"projections\.(\d+)\.query": r"network.encoder.\1.attention.query",
        r"projections\.(\d+)\.(key|value)": r"network.encoder.\1.attention.key_value.\2",
        r"memory\.(\d+)\.(key|value)": r"network.decoder.\1.cross_attention.key_value.\2",
        r"joined\.(\d+)": r"network.encoder.\1.attention.joined",
    },
    "step": {
        r"output_layer\._weights\.0": r"output_layer.weight",
        r"output_layer\._layer\.(prior|others\..*)": r"output_layer.\1",
        r"projections\.(\d+)\.query": r"network.decoder.\1.self_attention.query",
        r"projections\.(\d+)\.(key|value)": r"network.decoder.\1.self_attention.key_value.\2",
        r"queries\.(\d+)": r"network.decoder.\1.cross_attention.query",
        r"joined\.(\d+)": r"network.decoder.\1.self_attention.joined",
    },
}
"""For each graph, the names in it that differ from those of the model's parameters, as regular expressions.

`joined` are queries, keys and values in one matrix, as older exports have them.
"""
_SCALED = re.compile(r"projections\.\d+\.query|queries\.\d+")
"""Queries that are stored multiplied by (d / heads)^-0.5."""
_BY_INPUT = re.compile(r"output_layer\._layer\.others\.\d+\.query")
"""Matrices that the model has as products read them, `[K, N]`."""


def bundle_model(bundle: Path) -> TranslationModel:
    """Return the model of a translation bundle with float32 weights.

    Raises `ValueError` for a bundle of another task, for an output layer of several kernels or with a bias, and where a
    parameter is not stored under its name (the exporter stores equal ones, such as untrained biases, once).
    """
    manifest = load_manifest(bundle)
    config, softmax = manifest.config, manifest.output_layer
    if not isinstance(config, TranslationConfig):
        raise ValueError(f"{bundle} holds no translation model but a {manifest.task} model")
    if len(softmax.kernels) > 1:
        raise ValueError(f"{bundle} has an output layer of {len(softmax.kernels)} kernels, not of one")
    if softmax.bias:
        raise ValueError(f"{bundle} has an output layer with a bias")
    if softmax.softcap is not None:
        raise ValueError(f"{bundle} has an output layer with a softcap")
    sizes = config.network
    network = Transformer(
        sizes.hidden_size,
        sizes.inner_size,
        sizes.heads,
        sizes.encoder_layers,
        sizes.decoder_layers,
        norm=sizes.norm,
        max_tokens=sizes.positions,
        dropout=0.0,
    )
    (kernel,) = softmax.kernels
    kernels = [{"name": kernel.name, **kernel.hyperparameters}]
    kernels += [each.model_dump(include={"name", "weight"}) | each.hyperparameters for each in softmax.components]
    layer = GeneralizedSoftmax(
        config.vocab_size, sizes.hidden_size, kernels, sparse_k=softmax.sparse_k, alpha=softmax.alpha
    )
    model = TranslationModel(network, layer)
    weights = _weights(bundle, manifest, (sizes.hidden_size // sizes.heads) ** -0.5)
    own = {name for name in model.state_dict() if not name.endswith("_extra_state")}
    if missing := sorted(own - weights.keys()):
        raise ValueError(f"{bundle} does not store under their names: {', '.join(missing)}")
    model.load_state_dict({name: torch.tensor(weights[name]) for name in own})
    return model.eval().requires_grad_(False)


def _weights(bundle: Path, manifest: Manifest, query_scale: float) -> Weights:
    """Return the float32 parameters of a translation bundle by their names in `TranslationModel`."""
    weights: Weights = {}
    for graph, renamed in _RENAMED.items():
        file = manifest.graphs[graph].onnx
        assert file is not None
        for name, array in _stored(onnx.load(bundle / file)).items():
            restored = array / np.float32(query_scale) if _SCALED.match(name) else array
            weights[_parameter(name, renamed)] = restored
    return _with_key_values(weights)


def _stored(model: onnx.ModelProto) -> Weights:
    """Return the float32 weights of a graph, dequantized; a matrix product's is `[N, K]`.

    A table `[V, d]` that is stored twice, as word vectors and as a matrix product, is that of the word vectors, whose
    8 bits are more than the 7 of products.
    """
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    found = {name: array for name, array in arrays.items() if array.dtype == np.float32}
    for name, array in arrays.items():
        if name.endswith("_int8"):
            plain = name.removesuffix("_int8")
            dequantized = array.astype(np.float32) * arrays[f"{plain}_scales"]
            found[plain] = dequantized if _BY_INPUT.match(plain) else dequantized.T.copy()
    for name, array in arrays.items():
        if name.endswith("_rows"):
            plain = name.removesuffix("_rows")
            found[plain] = array.astype(np.float32) * arrays[f"{plain}_row_scales"]
    return found


def _parameter(name: str, renamed: Mapping[str, str]) -> str:
    """Return the name of a parameter from that of a weight in a graph."""
    for pattern, replacement in renamed.items():
        if match := re.match(rf"{pattern}(?=\.(weight|bias)$|$)", name):
            return match.expand(replacement) + name[match.end() :]
    return name


def _with_key_values(weights: Weights) -> Weights:
    """Return the weights with keys and values in one matrix as the model has them."""
    result = dict(weights)
    for name in weights:
        prefix, _, kind = name.rpartition(".")
        if prefix.endswith(".joined"):
            attention, joined = prefix.removesuffix(".joined"), result.pop(name)
            size = len(joined) // 3
            result[f"{attention}.query.{kind}"] = joined[:size]
            result[f"{attention}.key_value.{kind}"] = joined[size:]
        elif prefix.endswith(".key_value.key"):
            both = prefix.removesuffix(".key")
            parts = [result.pop(f"{both}.{part}.{kind}") for part in ("key", "value")]
            result[f"{both}.{kind}"] = np.concatenate(parts)
    return result
