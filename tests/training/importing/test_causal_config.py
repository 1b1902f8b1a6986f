"""Configurations of causal language models as they are published, with the fields of older versions of transformers."""

import math
from typing import Any

import pytest
import transformers

from training.importing.causal_config import CausalConfig, read_causal_config
from training.importing.errors import ImportRefused

GPT2: dict[str, Any] = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
MISTRAL: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 32000,
}
QWEN2: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3: dict[str, Any] = {
    **QWEN2,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "sliding_window": None,
}
NEOX: dict[str, Any] = {
    "architectures": ["GPTNeoXForCausalLM"],
    "bos_token_id": 0,
    "eos_token_id": 0,
    "hidden_act": "gelu",
    "hidden_size": 512,
    "initializer_range": 0.02,
    "intermediate_size": 2048,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 2048,
    "model_type": "gpt_neox",
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.25,
    "tie_word_embeddings": False,
    "use_cache": True,
    "use_parallel_residual": True,
    "vocab_size": 50304,
}
GEMMA2: dict[str, Any] = {
    "architectures": ["Gemma2ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0,
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "eos_token_id": 1,
    "final_logit_softcapping": 30.0,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 2304,
    "initializer_range": 0.02,
    "intermediate_size": 9216,
    "max_position_embeddings": 8192,
    "model_type": "gemma2",
    "num_attention_heads": 8,
    "num_hidden_layers": 26,
    "num_key_value_heads": 4,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "use_cache": True,
    "vocab_size": 256000,
}
GEMMA3: dict[str, Any] = {
    **GEMMA2,
    "architectures": ["Gemma3ForCausalLM"],
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "eos_token_id": [1, 106],
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
}


def read(content: dict[str, Any]) -> CausalConfig:
    (architecture,) = content["architectures"]
    config = getattr(transformers, architecture).config_class.from_dict(dict(content))
    return read_causal_config(architecture, config.to_dict())


def test_gpt2() -> None:
    settings = read(GPT2).settings
    assert (len(settings.layers), settings.head_size, settings.inner_size) == (12, 64, 3072)
    assert settings.activation == "gelu_tanh"
    assert settings.learned_positions
    assert read(GPT2).tied


def test_llama_3_scales_its_rotations() -> None:
    config = read(LLAMA)
    rotary = config.settings.layers[0].rotary
    assert rotary is not None
    assert rotary.llama3 is not None
    assert (rotary.base, rotary.llama3.factor, rotary.llama3.positions) == (500000.0, 32.0, 8192)
    assert config.tied
    assert config.attention_scale == pytest.approx(1 / 8)
    frequencies = rotary.frequencies()
    assert float(frequencies[0]) == 1.0  # a short wave
    assert float(frequencies[-1]) == pytest.approx(500000.0 ** (-62 / 64) / 32)


def test_mistral_has_a_window_in_every_layer() -> None:
    assert {layer.window for layer in read(MISTRAL).settings.layers} == {4096}


def test_qwen_uses_a_window_only_where_it_says_so() -> None:
    for content in (QWEN2, QWEN3):
        assert {layer.window for layer in read(content).settings.layers} == {None}
    assert read(QWEN2).settings.projection_bias
    assert read(QWEN3).settings.head_norms
    assert not read(QWEN3).settings.projection_bias


def test_neox_rotates_a_part_of_each_head() -> None:
    rotary = read(NEOX).settings.layers[0].rotary
    assert rotary is not None
    assert (rotary.size, rotary.base) == (16, 10000.0)


def test_gemma_alternates_windows_and_has_two_bases() -> None:
    config = read(GEMMA2)
    assert [layer.window for layer in config.settings.layers[:4]] == [4096, None, 4096, None]
    assert (config.settings.attention_softcap, config.settings.final_softcap) == (50.0, 30.0)
    assert config.settings.embedding_scale == math.sqrt(2304)
    layers = read(GEMMA3).settings.layers
    assert [layer.window for layer in layers[:7]] == [512] * 5 + [None, 512]
    bases = [layer.rotary.base for layer in layers[:6] if layer.rotary is not None]
    assert bases == [10000.0] * 5 + [1000000.0]


@pytest.mark.parametrize("kind", ["yarn", "dynamic", "longrope"])
def test_other_scalings_are_refused(kind: str) -> None:
    scaling = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64}
    fields = {**read_fields(LLAMA), "rope_parameters": scaling}
    with pytest.raises(ImportRefused, match=f"rope_type '{kind}' is not supported"):
        read_causal_config("LlamaForCausalLM", fields)


def read_fields(content: dict[str, Any]) -> dict[str, Any]:
    (architecture,) = content["architectures"]
    fields: dict[str, Any] = getattr(transformers, architecture).config_class.from_dict(dict(content)).to_dict()
    return fields
