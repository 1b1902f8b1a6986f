"""The modules that sentence-transformers runs after the encoder: pooling, dense layers, normalization.

Shapes: `B` texts, `T` tokens, `h` hidden size, `d` dimensions of a vector.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from training.importing.errors import SAVED_AGAIN, ImportRefused
from training.importing.source import MODULES, SourceDirectory
from training.networks.weight_files import read_weights

__all__ = ["POOLINGS", "SentenceHead", "SentenceModules", "read_modules", "read_settings"]

POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Ways to make a vector of hidden states, in the order in which sentence-transformers joins several."""
_FORMER = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Fields of older configurations that are true for each way."""
_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Identity": nn.Identity(),
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "GELU": nn.GELU(),
    "Sigmoid": torch.sigmoid,
}
"""Activation functions of dense layers, by the last part of their name in torch."""
_INSTEAD = "import an ONNX file of the model with the output sentence_embedding (optimum-cli export onnx)"
"""What can be done with other modules."""
_SETTINGS, _PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"


@dataclass(frozen=True, kw_only=True)
class SentenceModules:
    """What follows the encoder, and how texts are prepared."""

    poolings: tuple[str, ...]
    """Of `POOLINGS`; several are joined. Empty where the model itself gives vectors of texts."""
    dense: Sequence[tuple[Tensor, Tensor | None, str]] = ()
    """Weights, biases and activation function of each layer after the pooling."""
    normalized: bool = False
    """Whether vectors have length 1."""
    max_tokens: int | None = None
    lower_case: bool = False
    """Whether texts are in lower case before they are tokenized."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None

    @property
    def line(self) -> str:
        """The modules in words."""
        if not self.poolings:
            return "pooling: by the given graph"
        dense = f", {len(self.dense)} dense layer{'s' * (len(self.dense) > 1)}" if self.dense else ""
        return f"pooling: {' and '.join(self.poolings)}{dense}"


def read_modules(source: SourceDirectory, pooling: str | None) -> SentenceModules:
    """Return the modules of a directory, or with `pooling` those of a bare encoder; raises `ImportRefused`."""
    if not source.has(MODULES):
        if pooling is None:
            raise ImportRefused(
                f"{source.name} has no {MODULES}, which says how hidden states become a vector: give --pooling mean or "
                "cls to import it as a model of embeddings, or train a classifier on it (network.pretrained of a "
                "recipe, docs/tutorials/classifier.md)"
            )
        return SentenceModules(poolings=(_known(pooling, "--pooling"),))
    if pooling is not None:
        raise ImportRefused(f"--pooling is for encoders without {MODULES}, and {source.name} has one; leave it out")
    pooled, dense, normalized = _after_the_encoder(source)
    return replace(_settings(source), poolings=_poolings(pooled), dense=dense, normalized=normalized)


def read_settings(source: SourceDirectory) -> SentenceModules:
    """Return how texts are prepared for a model that gives vectors of texts, and whether these are normalized.

    The files may be missing. Raises `ImportRefused`.
    """
    kinds = [kind for kind, _ in _listed(source)] if source.has(MODULES) else []
    return replace(_settings(source), normalized="Normalize" in kinds)


def _settings(source: SourceDirectory) -> SentenceModules:
    settings, stated = source.json(_SETTINGS, optional=True), source.json(_PROMPTS, optional=True)
    prompts = stated.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(each, str) for each in prompts.values()):
        raise ImportRefused(f"prompts in {_PROMPTS} must be texts by name; correct it there")
    longest = settings.get("max_seq_length")
    return SentenceModules(
        poolings=(),
        max_tokens=longest if isinstance(longest, int) else None,
        lower_case=settings.get("do_lower_case") is True,
        prompts=prompts,
        default_prompt=stated.get("default_prompt_name"),
    )


def _after_the_encoder(
    source: SourceDirectory,
) -> tuple[Mapping[str, Any], list[tuple[Tensor, Tensor | None, str]], bool]:
    """Return the configuration of the pooling, the dense layers, and whether vectors are normalized."""
    first, *rest = _listed(source)
    if first[0] != "Transformer" or first[1] not in ("", "."):
        raise ImportRefused(
            f"the first module of {MODULES} must be a Transformer in the directory itself, not {first[0]} in "
            f"{first[1]!r}; {_INSTEAD}"
        )
    if not rest or rest[0][0] != "Pooling":
        raise ImportRefused(f"the second module of {MODULES} must be Pooling; {_INSTEAD}")
    pooled = source.json(f"{rest[0][1]}/config.json")
    if pooled.get("include_prompt", True) is not True:
        raise ImportRefused(
            f"include_prompt is false: vectors without the tokens of the prompt are not computed; {_INSTEAD}"
        )
    dense, normalized = [], False
    for kind, path in rest[1:]:
        if kind == "Dense" and not normalized:
            dense.append(_dense(source, path))
        elif kind == "Normalize":
            normalized = True
        elif kind != "Dropout":
            raise ImportRefused(
                f"{MODULES} has a module {kind}; known are Transformer, Pooling, Dense and Normalize; {_INSTEAD}"
            )
    return pooled, dense, normalized


def _listed(source: SourceDirectory) -> list[tuple[str, str]]:
    """Return class and directory of each module; raises `ImportRefused`."""
    content = source.json_list(MODULES)
    found = []
    for each in content:
        kind, path = (each.get(name) if isinstance(each, dict) else None for name in ("type", "path"))
        if not isinstance(kind, str) or not isinstance(path, str) or path.startswith("/") or ".." in path:
            raise ImportRefused(f"{MODULES} must be a list of modules with type and path; {SAVED_AGAIN}")
        found.append((kind.rpartition(".")[2], path))
    if not found:
        raise ImportRefused(f"{MODULES} names no module; {SAVED_AGAIN}")
    return found


def _poolings(config: Mapping[str, Any]) -> tuple[str, ...]:
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for name, mode in _FORMER.items() if config.get(name)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    return tuple(_known(mode, "pooling_mode") for mode in modes)


def _known(pooling: object, where: str) -> str:
    if pooling not in POOLINGS:
        raise ImportRefused(f"{where} must be one of {', '.join(POOLINGS)}, not {pooling!r}")
    return str(pooling)


def _dense(source: SourceDirectory, path: str) -> tuple[Tensor, Tensor | None, str]:
    config = source.json(f"{path}/config.json")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        raise ImportRefused(
            f"{path} has the activation function {activation}; known are {', '.join(_ACTIVATIONS)}; {_INSTEAD}"
        )
    if config.get("use_residual"):
        raise ImportRefused(f"{path} has a residual connection, which is not known; {_INSTEAD}")
    names = [f"{path}/{name}" for name in ("model.safetensors", "pytorch_model.bin")]
    name = next((each for each in names if source.has(each)), names[0])
    try:
        weights = read_weights(source.file(name))
    except (OSError, ValueError) as error:
        raise ImportRefused(f"{name}: {error}; {SAVED_AGAIN}") from error
    matrix, bias = weights.get("linear.weight"), weights.get("linear.bias")
    if matrix is None or matrix.dim() != 2 or (bias is not None and bias.shape != matrix.shape[:1]):
        raise ImportRefused(f"{name} lacks linear.weight, or has it in another shape than linear.bias; {SAVED_AGAIN}")
    return matrix.float(), None if bias is None else bias.float(), activation


class SentenceHead(nn.Module):
    """Makes a vector of each text's hidden states, without the normalization."""

    def __init__(self, modules: SentenceModules) -> None:
        super().__init__()
        self._poolings = modules.poolings
        self._activations = [activation for _, _, activation in modules.dense]
        self.matrices = nn.ParameterList([matrix for matrix, _, _ in modules.dense])
        biases = [matrix.new_zeros(len(matrix)) if bias is None else bias for matrix, bias, _ in modules.dense]
        self.biases = nn.ParameterList(biases)
        self.requires_grad_(False)

    def forward(self, output: Any, lengths: Tensor) -> Tensor:
        """Output of transformers with `last_hidden_state` `[B, T, h]`, lengths `[B]` -> vectors `[B, d]`."""
        hidden = output.last_hidden_state
        vectors = torch.cat([_pooled(hidden, lengths, each) for each in self._poolings], dim=-1)
        for matrix, bias, activation in zip(self.matrices, self.biases, self._activations, strict=True):
            vectors = _ACTIVATIONS[activation](nn.functional.linear(vectors, matrix, bias))
        return vectors


def _pooled(hidden: Tensor, lengths: Tensor, pooling: str) -> Tensor:
    """Return one vector of each text: hidden `[B, T, h]`, lengths `[B]` -> `[B, h]`."""
    if pooling == "cls":
        return hidden[:, 0]
    places = torch.arange(hidden.shape[1], device=hidden.device)
    inside = (places < lengths[:, None])[..., None]
    if pooling == "max":
        return hidden.masked_fill(~inside, -torch.inf).amax(dim=1)
    if pooling == "lasttoken":
        last = (places == lengths[:, None] - 1)[..., None]
        return (hidden * last).sum(dim=1)
    weights = inside.to(hidden.dtype)
    if pooling == "weightedmean":
        weights = weights * (places + 1)[None, :, None]
    total = weights.sum(dim=1)
    return (hidden * weights).sum(dim=1) / (total.sqrt() if pooling == "mean_sqrt_len_tokens" else total)
