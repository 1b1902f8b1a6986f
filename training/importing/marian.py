"""Import of MarianMT models (opus-mt): manifest section, files and comparison with transformers.

A directory has `config.json`, `model.safetensors`, `vocab.json`, `source.spm` and `target.spm`, and may have
`generation_config.json`, `tokenizer_config.json` and, with `"separate_vocabs": true`, `target_vocab.json`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from models.bundle.contract import SpecialTokens
from models.tasks.translation import Languages
from models.text.sentence_pieces import SentencePieceTokenizer
from training.bundling.onnx_tools import quiet
from training.importing.errors import SAVED_AGAIN, ImportRefused
from training.importing.importer import ImportOptions, need, register
from training.importing.marian_model import MarianSettings, read_marian
from training.importing.sentence_pieces import (
    CHARACTERS,
    SentencePieceModel,
    compare_pieces,
    is_language,
    read_vocabulary,
)
from training.importing.source import SourceDirectory
from training.importing.translation import TOKENIZER, NetworkSizes, TranslationImporter
from training.networks.translation_model import TranslationModel

__all__ = ["MarianImporter"]

TARGET_TOKENIZER = "target_tokenizer.json"
"""File of the bundle."""

_NAME = re.compile(r"-([a-z]{2,3})-([a-z]{2,3})$")
"""The languages at the end of a directory's name, such as `opus-mt-de-en`."""
_LISTED = 12
"""Languages that a message lists."""


@register("MarianMTModel")
class MarianImporter(TranslationImporter):
    """Import of a MarianMT model."""

    reference_class = "MarianMTModel"
    reference = ("transformers", "sentencepiece")

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self.settings = MarianSettings.parse(self.stated())
        said = source.json("tokenizer_config.json", optional=True)
        self.separate = said.get("separate_vocabs") is True
        """Whether source and target have vocabularies of their own."""
        self.source_vocabulary = read_vocabulary(source, "vocab.json", self.settings.vocab_size)
        self.target_vocabulary = (
            read_vocabulary(source, "target_vocab.json", self.settings.target_size)
            if self.separate
            else self.source_vocabulary
        )
        self._pieces = SentencePieceModel.read(source.file("source.spm"))
        self._target_pieces = SentencePieceModel.read(source.file("target.spm")) if self.separate else self._pieces
        pair = _language_pair(options.languages, said, source.name)
        self.languages = _languages(*pair, self.source_vocabulary)
        self.special_tokens = self._special_tokens()
        self.sizes = NetworkSizes.of_bart(self.settings, "post", self.settings.target_size)
        self.never_generated = self.settings.never_generated
        self.max_tokens = self.chosen_max_tokens()

    def _special_tokens(self) -> SpecialTokens:
        settings, end = self.settings, self.settings.eos_token_id
        if not self.source_vocabulary["</s>"] == self.target_vocabulary["</s>"] == end:
            raise ImportRefused(
                f"</s> is not token {end}, the eos_token_id of config.json, in every vocabulary; {SAVED_AGAIN}"
            )
        return SpecialTokens(unknown=self.source_vocabulary["<unk>"], end=end, start=settings.decoder_start_token_id)

    def read_model(self) -> TranslationModel:
        return read_marian(self.source, self.settings)

    def vocabulary(self) -> Mapping[str, object]:
        section = {
            "characters": CHARACTERS,
            "vocab_size": self.settings.vocab_size,
            "target": TARGET_TOKENIZER if self.separate else None,
        }
        return {"sentence_pieces": section}

    def files(self) -> dict[str, Callable[[Path], object]]:
        """Return the files besides the graphs, by name: a function that writes each."""
        tokenizers = {TOKENIZER: self._pieces.tokenizer(self.source_vocabulary, self.settings.vocab_size)}
        if self.separate:
            target = self._target_pieces.tokenizer(self.target_vocabulary, self.settings.target_size)
            tokenizers[TARGET_TOKENIZER] = target
        characters = json.dumps(self._pieces.characters(), ensure_ascii=False)
        return {
            **{name: _saver(tokenizer) for name, tokenizer in tokenizers.items()},
            CHARACTERS: lambda path: path.write_text(characters, encoding="utf-8"),
        }

    def compare_tokens(self, bundle: Path, texts: Sequence[str]) -> None:
        transformers = need("transformers")
        with quiet():
            tokenizer = transformers.MarianTokenizer.from_pretrained(self.source.path, local_files_only=True)
        read = SentencePieceTokenizer.from_files(bundle / TOKENIZER, bundle / CHARACTERS, self.settings.vocab_size)
        compare_pieces(tokenizer, tokenizer.spm_source, read, texts)


def _language_pair(wanted: str | None, said: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return source and target as the caller says them, or `tokenizer_config.json`, or the directory's name."""
    if wanted is not None:
        source, hyphen, target = wanted.partition("-")
        if not (source and hyphen and target):
            raise ImportRefused(f"--languages must be source and target such as de-en, not {wanted!r}")
        return source, target
    named = said.get("source_lang"), said.get("target_lang")
    if isinstance(named[0], str) and isinstance(named[1], str):
        return named[0], named[1]
    if found := _NAME.search(name):
        return found[1], found[2]
    raise ImportRefused("the directory does not say which languages it is for; say so by --languages, such as de-en")


def _languages(source: str, target: str, vocabulary: Mapping[str, int]) -> Languages:
    """Return the source language, and the target languages with the tokens that name them, where there are such."""
    targets = {piece[2:-2]: token for piece, token in vocabulary.items() if is_language(piece)}
    if targets and target not in targets:
        known = [*sorted(targets)[:_LISTED], *(["..."] if len(targets) > _LISTED else [])]
        raise ImportRefused(
            f"the model translates into several languages; say which is the default by --languages {source}-CODE, "
            f"CODE being one of {', '.join(known)}"
        )
    try:
        return Languages(source=source, target=target, targets=targets)
    except ValueError as error:
        raise ImportRefused(f"languages: {error}") from error


def _saver(tokenizer: Any) -> Callable[[Path], object]:
    return lambda path: tokenizer.save(str(path))
