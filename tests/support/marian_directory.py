"""Write MarianMT directories with random weights, as transformers saves them, to test and measure their import.

    python -m tests.support.marian_directory opus-mt-de-en

By default it has the sizes of opus-mt models: 6 + 6 layers, 512 hidden units, 58,101 tokens.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from training.importing.importer import need

__all__ = ["SENTENCES", "Spread", "made_up_word", "sentence_piece_model", "write_marian", "write_vocabularies"]

SENTENCES = (
    "Das ist ein Haus, in dem wir seit vielen Jahren wohnen.",
    "Wo ist der Bahnhof, und wann fährt der nächste Zug nach München?",
    "Ich habe gestern 3.456 Äpfel gekauft: grüne, rote und gelbe!",
    "Kannst du mir bitte helfen, das Fenster zu öffnen?",
    "Morgen werden wir ins Museum gehen, wenn es regnet.",
    "Nous avons acheté du pain, du fromage et trois bouteilles de vin.",
    "L'été dernier, elle a visité sa grand-mère à la campagne.",
    "This is the house in which we have been living for many years.",
    "Where is the station, and when does the next train leave?",
    "Yesterday I bought 3,456 apples: green, red and yellow ones!",
    "Could you please help me to open the window?",
    "We will go to the museum tomorrow if it rains.",
)
"""Sentences of several languages, from which the vocabularies are made."""

_SPM_PIECES = 150
_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxyz" for vowel in "aeiouäöü"]


@dataclass(frozen=True)
class Spread:
    """Factors of the usual standard deviations of weights; those of word vectors are as usual.

    The larger they are, the more do outputs vary with source and position, and the more do networks of many layers
    amplify the rounding of their numbers.
    """

    attention: float = 2.0
    """Factor of the weights of queries and keys."""
    others: float = 1.0
    confidence: float = 1.0
    """Factor of the last layer's output."""


def main(
    output: Annotated[Path, tyro.conf.Positional],
    vocab_size: int = 58_101,
    hidden_size: int = 512,
    inner_size: int = 2048,
    heads: int = 8,
    layers: int = 6,
) -> None:
    """Write a directory and print its number of parameters.

    Args:
        output: Directory to write, which may exist.
        vocab_size: Tokens of both languages together.
        hidden_size: Size of word vectors.
        inner_size: Width of the feed-forward networks.
        heads: Attention heads.
        layers: Layers of the encoder, and of the decoder.
    """
    write_vocabularies(output, vocab_size)
    model = write_marian(
        output,
        end_bias=-100.0,
        d_model=hidden_size,
        encoder_ffn_dim=inner_size,
        decoder_ffn_dim=inner_size,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_layers=layers,
        decoder_layers=layers,
    )
    print(f"{output}: {sum(parameter.numel() for parameter in model.parameters()):,} parameters")


def sentence_piece_model(sentences: Sequence[str], pieces: int = _SPM_PIECES, **options: Any) -> Any:
    """Return the protocol buffer of a Unigram model trained on sentences; `options` are those of the trainer."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=written,
        vocab_size=pieces,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    model: Any = vars(sentencepiece_model_pb2)["ModelProto"]()
    model.ParseFromString(written.getvalue())
    return model


def write_vocabularies(directory: Path, vocab_size: int, languages: Sequence[str] = ()) -> None:
    """Write `source.spm`, `target.spm` and `vocab.json`: pieces of real words, and made-up words to fill the number up.

    `languages` are codes of target languages for which there are tokens. The vocabulary lacks two pieces of the source,
    and has some that only the target has, as those of opus-mt models do.
    """
    directory.mkdir(parents=True, exist_ok=True)
    halves = SENTENCES[:7], SENTENCES[7:]
    models = [sentence_piece_model(sentences) for sentences in halves]
    known = list(dict.fromkeys(piece.piece for model in models for piece in model.pieces if piece.type == 1))
    known = [piece for piece in known if piece not in ("ß", "M")]
    special = ["</s>", "<unk>", *(f">>{code}<<" for code in languages)]
    missing = vocab_size - len(known) - len(special) - 1
    if missing < 0:
        raise ValueError(f"vocab_size must be at least {vocab_size - missing}")
    words = [f"▁{made_up_word(number)}" for number in range(missing)]
    for side, model in enumerate(models):
        for number, word in enumerate(words[side::2]):
            model.pieces.add(piece=word, score=-9.0 - number / max(1, missing))
        name = ("source", "target")[side]
        (directory / f"{name}.spm").write_bytes(model.SerializeToString())
    vocabulary = {piece: token for token, piece in enumerate([*special, *known, *words, "<pad>"])}
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    config = {"source_lang": "de", "target_lang": "mul" if languages else "en", "model_max_length": 512}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def made_up_word(number: int) -> str:
    """Return a made-up word of three syllables or more, which is a token; another one for each number."""
    syllables = []
    for _ in range(3):
        number, syllable = divmod(number, len(_SYLLABLES))
        syllables.append(_SYLLABLES[syllable])
    return "".join(syllables)


def write_marian(
    directory: Path, *, end_bias: float, seed: int = 0, spread: Spread | None = None, **settings: Any
) -> Any:
    """Write configuration and random weights for the vocabulary of a directory; return the model of transformers.

    `settings` are fields of `MarianConfig`. `end_bias` is added to the score of the end token: the larger, the shorter
    are outputs.
    """
    transformers = need("transformers")
    vocabulary = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    size, start = len(vocabulary), vocabulary["<pad>"]
    common = {"decoder_start_token_id": start, "eos_token_id": 0, "pad_token_id": start, "forced_eos_token_id": 0}
    fields = {"activation_function": "swish", "scale_embedding": True, "max_position_embeddings": 512, **settings}
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(transformers.MarianConfig(vocab_size=size, **common, **fields)).eval()
    _randomize(model, end_bias, Spread() if spread is None else spread)
    search = {"bad_words_ids": [[start]], "num_beams": 4, "max_length": 512, "renormalize_logits": True}
    model.generation_config = transformers.GenerationConfig(**common, **search)
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(directory)
    return model


@torch.no_grad()
def _randomize(model: Any, end_bias: float, spread: Spread) -> None:
    """Draw weights with which outputs depend on the source and on the position."""
    for name, weight in model.named_parameters():
        if "embed_positions" in name:
            continue
        if weight.dim() == 1:
            weight.normal_(1.0 if "norm.weight" in name else 0.0, 0.2 if "norm.weight" in name else 0.02)
            continue
        factor = 1.0 if "embed_tokens" in name or "shared" in name or "lm_head" in name else spread.others
        factor = spread.attention if "q_proj" in name or "k_proj" in name else factor
        weight.normal_(0.0, factor * weight.shape[1] ** -0.5)
        if "fc2" in name:  # the mean of the activations would be the same vector for every token
            weight -= weight.mean(1, keepdim=True)
    for embedding in (model.get_encoder().embed_tokens, model.get_decoder().embed_tokens):
        embedding.weight[model.config.pad_token_id] = 0.0  # what outputs start after; CTranslate2 takes it for granted
    model.model.decoder.layers[-1].final_layer_norm.weight.mul_(spread.confidence)
    model.final_logits_bias.normal_(0.0, 0.1)
    model.final_logits_bias[0, 0] = end_bias


if __name__ == "__main__":
    tyro.cli(main)
