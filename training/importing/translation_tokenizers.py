"""Tokenizers of translation models that are files of the library `tokenizers`, as the service reads them.

The file of the bundle puts no tokens around a text, and has a token for each of the network's word vectors. Special
tokens and those of languages are marked as special, so that no text has them and no output spells them.
"""

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from models.bundle.contract import SpecialTokens
from models.native import native_errors
from models.text.tokenization import SubwordTokenizer
from training.importing.errors import SAVED_AGAIN, ImportRefused

__all__ = ["compare_subwords", "language_tokens", "service_tokenizer"]

_LANGUAGE = re.compile(r"[a-z]{2,3}_([A-Z][a-z]{3}|[A-Z]{2})")
"""Tokens such as `deu_Latn` and `de_DE`."""


def language_tokens(tokenizer: Any) -> dict[str, int]:
    """Return the tokens of a tokenizer of transformers that name languages, by their ids, in order."""
    found = {str(piece): int(token) for piece, token in tokenizer.get_vocab().items() if _LANGUAGE.fullmatch(piece)}
    return dict(sorted(found.items(), key=lambda each: each[1]))


@native_errors()
def service_tokenizer(tokenizer: Any, vocab_size: int, special: Collection[str]) -> Tokenizer:
    """Return the file of a tokenizer of transformers for a network with `vocab_size` tokens.

    `special` are tokens besides those that the tokenizer names. Raises `ImportRefused` where it has more tokens.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content |= {"post_processor": None, "truncation": None, "padding": None}
    found = Tokenizer.from_str(json.dumps(content))
    names = dict.fromkeys([*map(str, tokenizer.all_special_tokens), *special])
    found.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    missing = vocab_size - found.get_vocab_size()
    if missing < 0:
        raise ImportRefused(
            f"the tokenizer has {-missing} tokens more than vocab_size, which is {vocab_size}; resize the table of "
            "words (model.resize_token_embeddings), or take the model's own tokenizer"
        )
    found.add_special_tokens([AddedToken(f"<unused_token_{number}>", special=True) for number in range(missing)])
    if found.get_vocab_size() != vocab_size or found.id_to_token(vocab_size - 1) is None:
        raise ImportRefused(f"the ids of the tokenizer are not those from 0 to {vocab_size - 1}; {SAVED_AGAIN}")
    return found


@native_errors()
def compare_subwords(
    file: Path, special: SpecialTokens, reference: Any, texts: Sequence[str], prompt: str = ""
) -> None:
    """Raise `ImportRefused` where a text has other ids than in transformers.

    With a prompt, the ids of prompt and text together must be those of both. Texts that spell a special token are left
    out: the reference reads it as that token, and the service as text.
    """
    ours = SubwordTokenizer.from_file(file, special)
    plain = [text for text in texts if not any(str(token) in text for token in reference.all_special_tokens)]
    before = ours.encode_batch([prompt])[0] if prompt else []
    expected = reference([prompt + text for text in plain], add_special_tokens=False, verbose=False)["input_ids"]
    for text, wanted, ids in zip(plain, expected, ours.encode_batch(plain), strict=True):
        if wanted != [*before, *ids]:
            raise ImportRefused(
                f"{text[:80]!r} gets the tokens {[*before, *ids][:20]}, but {wanted[:20]} in transformers; "
                f"{SAVED_AGAIN}"
            )
