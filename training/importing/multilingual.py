"""Import of M2M100, NLLB and mBART models: many languages to many, each named by a token.

A source begins with the token of its language, an output, after the start token, with that of the target language.

A directory has `config.json`, `model.safetensors` and a tokenizer: `vocab.json` and `sentencepiece.bpe.model` of
M2M100, `tokenizer.json` or `sentencepiece.bpe.model` of NLLB and mBART.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from models.bundle.contract import SpecialTokens
from models.text.sentence_pieces import SentencePieceTokenizer
from training.bundling.onnx_tools import quiet
from training.importing.errors import SAVED_AGAIN, ImportRefused
from training.importing.importer import ImportOptions, need, register
from training.importing.multilingual_model import MultilingualSettings, read_multilingual
from training.importing.sentence_pieces import CHARACTERS, SentencePieceModel, compare_pieces, read_vocabulary
from training.importing.source import SourceDirectory
from training.importing.tokenizers import reference_tokenizer
from training.importing.translation import TOKENIZER, NetworkSizes, TranslationImporter
from training.importing.translation_languages import NamedLanguages
from training.importing.translation_tokenizers import compare_subwords, language_tokens, service_tokenizer
from training.networks.translation_model import TranslationModel

__all__ = ["MBartImporter", "MultilingualImporter"]

_VOCABULARY, _PIECES = "vocab.json", "sentencepiece.bpe.model"


@register("M2M100ForConditionalGeneration")
class MultilingualImporter(TranslationImporter):
    """Import of an M2M100 or NLLB model."""

    reference_class = "M2M100ForConditionalGeneration"

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        if options.prefix is not None:
            raise ImportRefused("--prefix is for T5 and mT5; this model has tokens for its languages")
        self.settings = settings = MultilingualSettings.parse(self.stated())
        self._said = source.json("tokenizer_config.json", optional=True)
        if self._said.get("legacy_behaviour") is True:
            raise ImportRefused(
                "tokenizer_config.json: legacy_behaviour, language tokens after a source, is not supported; "
                "save the tokenizer without it, where the model was not trained with it"
            )
        self._has_pieces = source.has(_VOCABULARY) and source.has(_PIECES)
        """Whether the tokenizer is that of M2M100: a SentencePiece model, and ids in another file."""
        self.reference = ("transformers", "sentencepiece") if self._has_pieces else ("transformers",)
        self._tokenizer = self._read_tokenizer()
        tokens = self._language_tokens()
        forced = next((code for code, token in tokens.items() if token == settings.forced_bos_token_id), None)
        stated = [code if isinstance(code := self._said.get(name), str) else None for name in ("src_lang", "tgt_lang")]
        self.languages = NamedLanguages(tokens, stated[0], forced or stated[1]).chosen(options)
        unknown = self._tokenizer.convert_tokens_to_ids("<unk>")
        self.special_tokens = SpecialTokens(unknown=unknown, end=settings.eos_token_id, start=settings.start)
        if self._tokenizer.convert_tokens_to_ids("</s>") != settings.eos_token_id:
            raise ImportRefused(
                f"</s> is not token {settings.eos_token_id}, the eos_token_id of config.json; {SAVED_AGAIN}"
            )
        self.sizes = NetworkSizes.of_bart(settings, "pre", settings.vocab_size)
        self.never_generated = settings.never_generated
        self.max_tokens = self.chosen_max_tokens()

    def _read_tokenizer(self) -> Any:
        if not self._has_pieces:
            return reference_tokenizer(self.source)
        self._vocabulary = read_vocabulary(self.source, _VOCABULARY, self.settings.vocab_size)
        self._pieces = SentencePieceModel.read(self.source.file(_PIECES), merges=True)
        transformers = need("transformers")
        try:
            with quiet():
                return transformers.M2M100Tokenizer.from_pretrained(self.source.path, local_files_only=True)
        except Exception as error:  # whatever a file of the directory leads to
            raise ImportRefused(
                f"the tokenizer of {self.source.name} cannot be read: {error}; {SAVED_AGAIN}"
            ) from error

    def _language_tokens(self) -> dict[str, int]:
        """Return the tokens of the languages by code; raises `ImportRefused` where there are none."""
        found = dict(self._tokenizer.lang_code_to_id) if self._has_pieces else language_tokens(self._tokenizer)
        if not found or max(found.values()) >= self.settings.vocab_size:
            raise ImportRefused(
                f"the tokenizer has no tokens of languages below {self.settings.vocab_size}, vocab_size; {SAVED_AGAIN}"
            )
        return found

    def read_model(self) -> TranslationModel:
        return read_multilingual(self.source, self.settings)

    def vocabulary(self) -> Mapping[str, object]:
        if not self._has_pieces:
            return {}
        return {"sentence_pieces": {"characters": CHARACTERS, "vocab_size": self.settings.vocab_size, "target": None}}

    def files(self) -> dict[str, Callable[[Path], object]]:
        """Return the files besides the graphs, by name: a function that writes each."""
        size = self.settings.vocab_size
        if not self._has_pieces:
            tokenizer = service_tokenizer(self._tokenizer, size, list(language_tokens(self._tokenizer)))
            return {TOKENIZER: lambda path: tokenizer.save(str(path))}
        pieces, characters = self._pieces.tokenizer(self._vocabulary, size), self._pieces.characters()
        return {
            TOKENIZER: lambda path: pieces.save(str(path)),
            CHARACTERS: lambda path: path.write_text(json.dumps(characters, ensure_ascii=False), encoding="utf-8"),
        }

    def compare_tokens(self, bundle: Path, texts: Sequence[str]) -> None:
        if not self._has_pieces:
            compare_subwords(bundle / TOKENIZER, self.special_tokens, self._tokenizer, texts)
            return
        read = SentencePieceTokenizer.from_files(bundle / TOKENIZER, bundle / CHARACTERS, self.settings.vocab_size)
        compare_pieces(self._tokenizer, self._tokenizer.sp_model, read, texts)


@register("MBartForConditionalGeneration")
class MBartImporter(MultilingualImporter):
    """Import of an mBART-50 model."""

    reference_class = "MBartForConditionalGeneration"
