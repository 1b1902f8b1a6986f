"""Write directories of causal language models with random weights, as transformers saves them, to test their import."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.support.marian_directory import SENTENCES

__all__ = ["FAMILIES", "PIECES", "write_causal", "write_tokenizer"]

FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "GPT2LMHeadModel": {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "LlamaForCausalLM": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 5000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "MistralForCausalLM": {"sliding_window": 5, "head_dim": 16},
    "Qwen2ForCausalLM": {"tie_word_embeddings": True},
    "Qwen3ForCausalLM": {
        "head_dim": 16,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 900.0, "factor": 2.0},
    },
    "GPTNeoXForCausalLM": {"rotary_pct": 0.5},
    "Gemma2ForCausalLM": {
        "sliding_window": 5,
        "head_dim": 8,
        "query_pre_attn_scalar": 10,
        "final_logit_softcapping": 6.0,
        "attn_logit_softcapping": 3.0,
    },
    "Gemma3ForCausalLM": {"sliding_window": 5, "head_dim": 16, "query_pre_attn_scalar": 10},
}
"""What the configuration of each family has besides `_SIZES`."""
PIECES = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM"})
"""Families with pieces in which spaces are U+2581, the others have pieces of bytes."""

_SIZES = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
_TOKENS = 400
_ROWS = 408
"""Rows of the output layer: some have no token, as published models have it."""


def write_causal(directory: Path, architecture: str, *, start: bool = True, noise: float = 1.0, **config: Any) -> Path:
    """Write a directory: tokenizer and a model of random weights.

    `noise` is added to them, so that distributions of small models are not flat; 0 leaves transformers' own.
    """
    wrapped = write_tokenizer(directory, architecture, start=start)
    model_class = getattr(transformers, architecture)
    sizes = {} if architecture.startswith("GPT2") else _SIZES
    if architecture.startswith("GPTNeoX"):
        sizes = {name: value for name, value in sizes.items() if name != "num_key_value_heads"}
    ends = {"bos_token_id": wrapped.bos_token_id, "eos_token_id": wrapped.eos_token_id, "pad_token_id": None}
    torch.manual_seed(0)
    settings = {"vocab_size": _ROWS, **sizes, **FAMILIES[architecture], **config}
    model = model_class(model_class.config_class(**ends, **settings))
    for name, parameter in model.named_parameters():
        spread = 0.3 if parameter.dim() == 1 else 0.2 if "embed" in name or "wte" in name or "head" in name else 0.25
        parameter.data += noise * spread * torch.randn_like(parameter)
    model.save_pretrained(directory)
    return directory


def write_tokenizer(directory: Path, architecture: str, *, start: bool = True) -> transformers.PreTrainedTokenizerFast:
    """Write the tokenizer of a family, which has 400 tokens at most, into a directory; return it."""
    pieces = architecture in PIECES
    tokenizer = _of_pieces(start=start) if pieces else _of_bytes()
    end = "</s>" if pieces else "<|endoftext|>"
    first = {"bos_token": "<s>", "unk_token": "<unk>"} if pieces else {"bos_token": end} if start else {}
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, **first)
    wrapped.save_pretrained(directory)
    return wrapped


def _of_bytes() -> Tokenizer:
    """Return byte-level BPE as GPT-2 has it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        SENTENCES,
        trainers.BpeTrainer(
            vocab_size=_TOKENS, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer


def _of_pieces(*, start: bool) -> Tokenizer:
    """Return BPE of pieces with bytes for other characters, as Llama 2 has it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(
        [word for text in SENTENCES for word in text.replace(" ", " ▁").split()],
        trainers.BpeTrainer(
            vocab_size=_TOKENS,
            special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))],
            show_progress=False,
        ),
    )
    described = json.loads(tokenizer.to_str())  # bytes are pieces of text, no special tokens
    described["added_tokens"] = [each for each in described["added_tokens"] if each["content"] in special]
    tokenizer = Tokenizer.from_str(json.dumps(described))
    if start:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
        )
    return tokenizer
