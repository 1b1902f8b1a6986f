"""Write directories of M2M100, NLLB, mBART-50, T5 and mT5 with random weights, to test and measure their import.

    python -m tests.support.translation_directories m2m100 my-m2m100

By default they have the sizes of published models, and a tokenizer made of a few sentences.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from tests.support.marian_directory import SENTENCES, made_up_word, sentence_piece_model
from training.importing.importer import need
from training.importing.sentence_pieces import SentencePieceModel

__all__ = ["FAMILIES", "TRUE_SIZES", "write_directory"]

Family = Literal["m2m100", "m2m100-bpe", "nllb", "mbart50", "t5", "mt5"]
FAMILIES: tuple[Family, ...] = ("m2m100", "m2m100-bpe", "nllb", "mbart50", "t5", "mt5")

_LARGE = {
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "max_position_embeddings": 1024,
}
TRUE_SIZES: Mapping[str, tuple[Family, Mapping[str, Any]]] = {
    "m2m100-418m": ("m2m100", {**_LARGE, "vocab_size": 128_112}),
    "nllb-200-distilled-600m": ("nllb", {**_LARGE, "vocab_size": 256_206}),
    "mbart-large-50": ("mbart50", {**_LARGE, "vocab_size": 250_054}),
    "t5-small": ("t5", {"vocab_size": 32_128, "d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8}),
    "t5-base": ("t5", {"vocab_size": 32_128, "d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}),
    "mt5-small": ("mt5", {"vocab_size": 250_112, "d_model": 512, "d_ff": 1024, "num_layers": 8, "num_heads": 6}),
    "mt5-base": ("mt5", {"vocab_size": 250_112, "d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12}),
}
"""Family and sizes of published models."""

_TINY = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 96,
}
_TINY_T5 = {"d_model": 32, "d_kv": 12, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 4}
_PROMPTS = {
    f"translation_en_to_{code}": {"prefix": f"translate English to {name}: "}
    for code, name in (("de", "German"), ("fr", "French"), ("ro", "Romanian"))
}
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")


def write_directory(family: Family, directory: Path, *, end_bias: float = 0.0, seed: int = 0, **settings: Any) -> Any:
    """Write a directory with a tiny model, or one with the given fields of `config.json`; return the model.

    `end_bias` lengthens the word vector of the end, which ends outputs earlier.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if family in ("t5", "mt5"):
        model = _write_t5(family, directory, seed, settings)
    else:
        model = _write_multilingual(family, directory, seed, settings)
    with torch.no_grad():
        output = model.get_output_embeddings().weight
        output[model.config.eos_token_id] *= 1 + end_bias
    need("transformers").utils.logging.disable_progress_bar()
    model.save_pretrained(directory)
    return model


def _pieces(merges: bool) -> Any:
    # Pieces of byte-pair encoding are fewer than the sentences allow, so that merges are not exhausted.
    return sentence_piece_model(
        [*SENTENCES, *SENTENCES], 240 if merges else 200, model_type="bpe" if merges else "unigram"
    )


def _write_multilingual(family: Family, directory: Path, seed: int, settings: Mapping[str, Any]) -> Any:
    transformers = need("transformers")
    proto = _pieces(family in ("nllb", "m2m100-bpe"))
    normal = [(piece.piece, piece.score) for piece in proto.pieces if piece.type == 1]
    wanted = settings.get("vocab_size")
    if family in ("m2m100", "m2m100-bpe"):
        vocabulary = {piece: token for token, piece in enumerate([*_SPECIAL, *(piece for piece, _ in normal)])}
        for number in range(0 if wanted is None else wanted - 108 - len(vocabulary)):
            proto.pieces.add(piece=f"▁{made_up_word(number)}", score=-30.0)
            vocabulary[f"▁{made_up_word(number)}"] = len(vocabulary)
        (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        (directory / "sentencepiece.bpe.model").write_bytes(proto.SerializeToString())
        (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "M2M100Tokenizer"}))
        tokens = transformers.M2M100Tokenizer.from_pretrained(directory).lang_code_to_id
        size = max(tokens.values()) + 9
        german = tokens["de"]
    else:
        if family == "nllb":
            written = directory / "written.spm"
            written.write_bytes(proto.SerializeToString())
            merges = SentencePieceModel.read(written, merges=True)._merges()
            written.unlink()
            ids = {piece: token for token, piece in enumerate([*_SPECIAL, *(piece for piece, _ in normal)])}
            tokenizer = transformers.NllbTokenizer(vocab=ids, merges=merges, src_lang="eng_Latn")
        else:
            unigram = [(piece.piece, piece.score) for piece in proto.pieces]
            tokenizer = transformers.MBart50Tokenizer(vocab=unigram, src_lang="en_XX", tgt_lang="de_DE")
        tokenizer.save_pretrained(directory)
        size, german = len(tokenizer) + 2, tokenizer.convert_tokens_to_ids("deu_Latn" if family == "nllb" else "de_DE")
    fields = {**_TINY, "vocab_size": size, "scale_embedding": True, **settings}
    kind = (
        ("MBartConfig", "MBartForConditionalGeneration")
        if family == "mbart50"
        else (
            "M2M100Config",
            "M2M100ForConditionalGeneration",
        )
    )
    torch.manual_seed(seed)
    fields["decoder_start_token_id"] = 2
    if family == "mbart50":
        fields |= {"normalize_before": True, "normalize_embedding": True}  # published files have them for other readers
    model = getattr(transformers, kind[1])(getattr(transformers, kind[0])(**fields)).eval()
    _randomize(model)
    model.generation_config.forced_bos_token_id = german
    return model


def _write_t5(family: Family, directory: Path, seed: int, settings: Mapping[str, Any]) -> Any:
    transformers = need("transformers")
    normal = [(piece.piece, piece.score) for piece in _pieces(False).pieces if piece.type == 1]
    extra = [(f"<extra_id_{number}>", 0.0) for number in range(9, -1, -1)]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *normal, *extra]
    tokenizer = transformers.T5Tokenizer(vocab=vocabulary, extra_ids=10)
    tokenizer.save_pretrained(directory)
    # Without sizes the model is tiny; with some, others are those of T5Config, not of the tiny model.
    fields = settings if "d_model" in settings else {**_TINY_T5, "vocab_size": len(tokenizer) + 5, **settings}
    torch.manual_seed(seed)
    if family == "t5":
        fields = {"task_specific_params": _PROMPTS, **fields}
        model = transformers.T5ForConditionalGeneration(
            transformers.T5Config(decoder_start_token_id=0, **fields)
        ).eval()
    else:
        model = transformers.MT5ForConditionalGeneration(transformers.MT5Config(**fields)).eval()
    _randomize(model)
    return model


@torch.no_grad()
def _randomize(model: Any) -> None:
    """Draw weights with which outputs depend on the source, the language and the position."""
    deep = model.config.num_hidden_layers > 4
    for name, weight in model.named_parameters():
        if "relative_attention_bias" in name:
            weight.normal_(0.0, 0.5 if deep else 1.5)
        elif weight.dim() == 1:
            weight.normal_(1.0 if "norm" in name and "bias" not in name else 0.0, 0.1)
        else:
            attends = any(part in name for part in ("q_proj", "k_proj", ".q.", ".k."))
            factor = 1.0 if deep or not attends else 2.0
            if not deep and name.endswith(("out_proj.weight", "fc2.weight", ".o.weight", ".wo.weight")):
                factor = 4.0  # otherwise the word vector of the last token outweighs the rest
            if not deep and name == "model.shared.weight":
                factor = 0.3  # for the same reason
            if name.endswith((".q.weight", ".k.weight")):  # scores of T5 are not scaled
                factor *= weight.shape[0] ** -0.25
            weight.normal_(0.0, factor * weight.shape[1] ** -0.5)


def main(name: Annotated[str, tyro.conf.Positional], output: Annotated[Path, tyro.conf.Positional]) -> None:
    """Write a directory and print its number of parameters.

    Args:
        name: One of m2m100-418m, nllb-200-distilled-600m, mbart-large-50, t5-small, t5-base, mt5-small and mt5-base.
        output: Directory to write, which may exist.
    """
    family, settings = TRUE_SIZES[name]
    model = write_directory(family, output, **settings)
    print(f"{output}: {sum(parameter.numel() for parameter in model.parameters()):,} parameters")


if __name__ == "__main__":
    tyro.cli(main)
