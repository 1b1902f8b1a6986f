"""Directories whose `config.json` names Python code, but whose model transformers has itself.

Nothing of the code is run. The class of transformers takes its place where it has the configuration's name, and where
no field of `config.json` says something that it does not compute. Sizes may have the names of GPT-2, as those of Nomic
have.
"""

import re
from collections.abc import Mapping
from typing import Any

from training.importing.errors import BY_ONNX, ImportRefused
from training.importing.source import CONFIG, SourceDirectory

__all__ = ["foreign_weights", "known_fields", "names_code"]

_CODE = "auto_map"
"""The field that names classes in files of Python."""
_FORMER_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "max_trained_positions": "max_position_embeddings",
    "rotary_emb_base": "rope_theta",
    "activation_function": "hidden_act",
}
"""Fields of the code's configuration, and what transformers calls them."""
_FORMER_VALUES = {"swiglu": "silu"}
_NEUTRAL: Mapping[str, object] = {"rotary_emb_fraction": 1, "scale_attn_weights": True}
"""Values that other fields may have, besides those that are false."""
_WITHOUT_EFFECT = re.compile(
    r"summary_\w+|fused_\w+|use_(cache|flash_attn|xentropy|memory_efficient_attention)|\w+_pdrop|n_positions"
    r"|pad_vocab_size_multiple|dense_seq_output|unpad_inputs|pack_qkv|reorder_and_upcast_attn"
    r"|torch_dtype|rope_theta|rope_scaling|_\w+"
)
"""Fields that change no result within the positions of the model, or that are read by other names."""
_OF_ENCODER = re.compile(r"(^|\.)(layers?\.\d+|embeddings)\.(?!position_ids)")


def names_code(source: SourceDirectory) -> bool:
    """Return whether `config.json` names code of the directory, or of another one."""
    return _CODE in source.config


def known_fields(model_class: Any, source: SourceDirectory) -> dict[str, Any]:
    """Return the fields of `config.json` by the names that a class of transformers has for them.

    Raises `ImportRefused` where the code has other classes than this one and its configuration, or fields that this
    configuration lacks.
    """
    if not names_code(source):
        return dict(source.config)
    config_class, named = model_class.config_class, source.config[_CODE]
    head = model_class.__name__.partition("For")
    for key, own in (("AutoConfig", config_class), ("AutoModel" + "".join(head[1:]), model_class)):
        code = named.get(key, own.__name__) if isinstance(named, dict) else None
        if not isinstance(code, str) or code.rpartition(".")[2] != own.__name__:
            raise ImportRefused(f"{CONFIG} names code for {code}, which is not run; {BY_ONNX}")
    fields: dict[str, Any] = {}
    for name, value in source.config.items():
        former = _FORMER_NAMES.get(name)
        if former is not None:
            fields.setdefault(former, _FORMER_VALUES.get(value, value) if isinstance(value, str) else value)
        elif name != _CODE:
            fields[name] = value
    known = config_class()
    foreign = [name for name, value in fields.items() if not hasattr(known, name) and not _is_neutral(name, value)]
    if foreign:
        raise ImportRefused(
            f"{CONFIG} names code, which is not run, and {config_class.__name__} of transformers lacks its fields "
            f"{', '.join(sorted(foreign)[:5])}; {BY_ONNX}"
        )
    return fields


def _is_neutral(name: str, value: object) -> bool:
    return not value or value == _NEUTRAL.get(name) or bool(_WITHOUT_EFFECT.fullmatch(name))


def foreign_weights(source: SourceDirectory, unexpected: list[str]) -> list[str]:
    """Return the weights of layers that the code's class has, and that of transformers does not."""
    return [name for name in sorted(unexpected) if names_code(source) and _OF_ENCODER.search(name)]
