"""Directories in Hugging Face's layout with random weights, made by transformers."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn

from training.bundling.onnx_tools import quiet
from training.importing.importer import need
from training.importing.samples import BUILT_IN

__all__ = ["SIZES", "TOKENIZERS", "make_classifier", "randomize", "save_tokenizer"]

SIZES: Mapping[str, dict[str, Any]] = {
    "BertForSequenceClassification": {"intermediate_size": 64},
    "RobertaForSequenceClassification": {"intermediate_size": 64, "max_position_embeddings": 50},
    "XLMRobertaForSequenceClassification": {"intermediate_size": 64, "max_position_embeddings": 49},
    "DistilBertForSequenceClassification": {"hidden_dim": 64},
    "ElectraForSequenceClassification": {"intermediate_size": 64, "embedding_size": 16},
    "DebertaV2ForSequenceClassification": {
        "intermediate_size": 64,
        "relative_attention": True,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "type_vocab_size": 0,
        "pooler_hidden_size": 64,
        "pooler_dropout": 0.0,
    },
    "AlbertForSequenceClassification": {"intermediate_size": 64, "embedding_size": 16},
    "CamembertForSequenceClassification": {"intermediate_size": 64, "max_position_embeddings": 49},
    "GteForSequenceClassification": {"intermediate_size": 64},
    "MPNetForSequenceClassification": {"intermediate_size": 64, "max_position_embeddings": 49},
    "NomicBertForSequenceClassification": {"intermediate_size": 64},
}
"""Fields of a small configuration of each architecture."""


def _word_pieces() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    counts = _counts(tokenizer)
    letters = sorted(set("".join(counts)))
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # of the library's trainers only that of byte pairs gives the same vocabulary in each run
    pieces = dict.fromkeys([*names, *letters, *(f"##{letter}" for letter in letters), *counts])
    tokenizer.model = models.WordPiece(
        {piece: index for index, piece in enumerate(list(pieces)[:300])}, unk_token="[UNK]"
    )
    tokenizer.add_special_tokens(names)
    tokenizer.post_processor = _template(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


def _bytes() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(BUILT_IN, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


def _unigram(names: tuple[str, str, str, str]) -> Tokenizer:
    _, start, end, unknown = names
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    counts = _counts(tokenizer)
    pieces = [*counts.items(), *((letter, 1) for letter in sorted(set("".join(counts)) - set(counts)))]
    total = sum(count for _, count in pieces)
    scores = [*((name, 0.0) for name in names), *((piece, math.log(count / total)) for piece, count in pieces)]
    tokenizer.model = models.Unigram(scores[:280], unk_id=names.index(unknown))
    tokenizer.add_special_tokens(list(names))
    tokenizer.post_processor = _template(tokenizer, start, end)
    return tokenizer


def _counts(tokenizer: Tokenizer) -> dict[str, int]:
    """Return how often each word of the built-in texts occurs, most frequent first."""
    assert tokenizer.normalizer is not None
    assert tokenizer.pre_tokenizer is not None
    texts = [tokenizer.normalizer.normalize_str(text) for text in BUILT_IN]
    words = [word for text in texts for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    return dict(Counter(words).most_common())


def _template(tokenizer: Tokenizer, start: str, end: str) -> processors.TemplateProcessing:
    ids = [(name, tokenizer.token_to_id(name)) for name in (start, end)]
    pair = f"{start} $A {end} $B:1 {end}:1" if start == "[CLS]" else f"{start} $A {end} {end} $B {end}"
    return processors.TemplateProcessing(single=f"{start} $A {end}", pair=pair, special_tokens=ids)


_BRACKETS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
_ANGLES = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}

TOKENIZERS: Mapping[str, tuple[Callable[[], Tokenizer], dict[str, str]]] = {
    "BertForSequenceClassification": (_word_pieces, _BRACKETS),
    "DistilBertForSequenceClassification": (_word_pieces, _BRACKETS),
    "ElectraForSequenceClassification": (_word_pieces, _BRACKETS),
    "RobertaForSequenceClassification": (_bytes, _ANGLES),
    "XLMRobertaForSequenceClassification": (lambda: _unigram(("<pad>", "<s>", "</s>", "<unk>")), _ANGLES),
    "AlbertForSequenceClassification": (_word_pieces, _BRACKETS),
    "CamembertForSequenceClassification": (lambda: _unigram(("<pad>", "<s>", "</s>", "<unk>")), _ANGLES),
    "GteForSequenceClassification": (lambda: _unigram(("<pad>", "<s>", "</s>", "<unk>")), _ANGLES),
    "NomicBertForSequenceClassification": (_word_pieces, _BRACKETS),
    "MPNetForSequenceClassification": (lambda: _unigram(("<pad>", "<s>", "</s>", "<unk>")), _ANGLES),
    "DebertaV2ForSequenceClassification": (lambda: _unigram(("[PAD]", "[CLS]", "[SEP]", "[UNK]")), _BRACKETS),
}
"""A function that trains a small tokenizer of each architecture, and the names of its special tokens."""


_TYPES = ("Albert", "Bert", "DebertaV2", "Electra", "NomicBert")
"""Beginnings of the names of architectures whose tokenizers give the types of tokens."""


def make_classifier(
    directory: Path,
    architecture: str,
    *,
    labels: int = 3,
    licence: str | None = "mit",
    deviation: float = 0.2,
    **config: Any,
) -> Path:
    """Write a small model with random weights and return the directory; `config` replaces fields.

    One of token classification has the sizes and the tokenizer of the classifier of its kind, or else those of BERT.
    """
    kind = architecture.replace("ForTokenClassification", "ForSequenceClassification")
    build, names = TOKENIZERS.get(kind, (_word_pieces, _BRACKETS))
    tokenizer = build()
    model_class = getattr(transformers, architecture)
    settings = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 48,
        "id2label": {number: f"class {number}" for number in range(labels)},
        "pad_token_id": tokenizer.token_to_id(names["pad_token"]),
    }
    need("transformers").utils.logging.disable_progress_bar()
    with quiet():
        torch.manual_seed(0)
        model = model_class(
            model_class.config_class(**{**settings, **SIZES.get(kind, {"intermediate_size": 64}), **config})
        )
        randomize(model, deviation)
        model.save_pretrained(directory)
        save_tokenizer(directory, tokenizer, names, types=architecture.startswith(_TYPES))
    if licence is not None:
        (directory / "README.md").write_text(f"---\nlicense: {licence}\n---\n# A model\n", encoding="utf-8")
    return directory


def save_tokenizer(directory: Path, tokenizer: Tokenizer, names: Mapping[str, str], *, types: bool) -> None:
    """Write a tokenizer as transformers does; with `types` it gives the types of tokens."""
    inputs = ["input_ids", *(["token_type_ids"] if types else []), "attention_mask"]
    fast: Any = transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, model_input_names=inputs, **names).save_pretrained(directory)


@torch.no_grad()
def randomize(model: nn.Module, deviation: float = 0.2) -> None:
    """Draw all weights anew, large enough that a mistake in any of them changes the result."""
    for name, parameter in model.named_parameters():
        mean = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        parameter.normal_(mean, deviation)
