"""Import of MarianMT models (opus-mt): manifest section, files and comparison with transformers.

A directory has `config.json`, `model.safetensors`, `vocab.json`, `source.spm` and `target.spm`, and may have
`generation_config.json`, `tokenizer_config.json` and, with `"separate_vocabs": true`, `target_vocab.json`.

Shapes: `T` tokens of a target, `V` tokens of the target's vocabulary.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor

from models.bundle.contract import SpecialTokens
from models.decoding.beam_search import Hypothesis
from models.decoding.sequence_to_sequence import SourceSequence
from models.tasks.translation import Languages, Translator
from models.text.sentence_pieces import SentencePieceTokenizer
from training.bundling.bundle import BundleGraph, Draft
from training.bundling.graphs import ExportGraph
from training.bundling.model_card import Card
from training.bundling.onnx import to_onnx
from training.bundling.onnx_tools import quiet
from training.bundling.verify import TOLERANCE, absolute_difference
from training.importing.errors import ImportRefused
from training.importing.importer import Agreement, Importer, ImportOptions, need, register
from training.importing.marian_model import MarianSettings, read_marian
from training.importing.sentence_pieces import SentencePieceModel, is_language, read_vocabulary
from training.importing.source import SourceDirectory
from training.networks.translation_model import TranslationModel
from training.tasks.sequence_export import largest_sequence_difference, quantize_sequences
from training.tasks.translation.alignment import extend_draft
from training.tasks.translation.graphs import translation_graphs

__all__ = ["MarianImporter"]

TOKENIZER, TARGET_TOKENIZER, CHARACTERS = "tokenizer.json", "target_tokenizer.json", "characters.json"
"""Files of the bundle."""

_NAME = re.compile(r"-([a-z]{2,3})-([a-z]{2,3})$")
"""The languages at the end of a directory's name, such as `opus-mt-de-en`."""
_POSITIONS = ("network.positions",)
_COMPARED_TOKENS = 64
"""Longest outputs that are compared, in tokens; models with random weights may never end by themselves."""
_SENTENCES = 3
"""Sentences of a text that are compared."""
_SHOWN = 12
"""Languages that a message lists."""


@register("MarianMTModel")
class MarianImporter(Importer):
    """Import of a MarianMT model."""

    task = "translation"
    reference = ("transformers", "sentencepiece")

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        generation = source.json("generation_config.json", optional=True)
        words = generation.get("bad_words_ids") or source.config.get("bad_words_ids")
        self.settings = MarianSettings.parse({**source.config, "bad_words_ids": words})
        said = source.json("tokenizer_config.json", optional=True)
        self.separate = said.get("separate_vocabs") is True
        """Whether source and target have vocabularies of their own."""
        self.vocabulary = read_vocabulary(source, "vocab.json", self.settings.vocab_size)
        self.target_vocabulary = (
            read_vocabulary(source, "target_vocab.json", self.settings.target_size)
            if self.separate
            else self.vocabulary
        )
        self._pieces = SentencePieceModel.read(source.file("source.spm"))
        self._target_pieces = SentencePieceModel.read(source.file("target.spm")) if self.separate else self._pieces
        pair = _language_pair(options.languages, said, source.name)
        self.languages = _languages(*pair, self.vocabulary)
        self.special_tokens = self._special_tokens()
        self.max_tokens = self._max_tokens()

    def _max_tokens(self) -> int:
        """Return the longest sentence in tokens, without its end and the token that names the target language."""
        most = self.settings.max_position_embeddings - 1 - len(self.languages.prefix(None))
        wanted = most if self.options.max_tokens is None else self.options.max_tokens
        if not 1 <= wanted <= most:
            raise ImportRefused(f"--max-tokens must lie between 1 and {most}, not {wanted}")
        return wanted

    def _special_tokens(self) -> SpecialTokens:
        settings, end = self.settings, self.settings.eos_token_id
        if not self.vocabulary["</s>"] == self.target_vocabulary["</s>"] == end:
            raise ImportRefused(f"</s> is not token {end}, the eos_token_id of config.json, in every vocabulary")
        return SpecialTokens(unknown=self.vocabulary["<unk>"], end=end, start=settings.decoder_start_token_id)

    @cached_property
    def model(self) -> TranslationModel:
        return read_marian(self.source, self.settings)

    @cached_property
    def _exported(self) -> Mapping[str, ExportGraph]:
        return translation_graphs(self.model)

    def graphs(self) -> Mapping[str, BundleGraph]:
        return {name: BundleGraph(graph.contract, to_onnx(graph)) for name, graph in self._exported.items()}

    def config(self) -> dict[str, object]:
        """Return the section of the manifest."""
        settings = self.settings
        return {
            "network": {
                "kind": "transformer",
                "hidden_size": settings.d_model,
                "inner_size": settings.encoder_ffn_dim,
                "heads": settings.encoder_attention_heads,
                "encoder_layers": settings.encoder_layers,
                "decoder_layers": settings.decoder_layers,
                "norm": "post",
                "activation": settings.activation,
                "positions": settings.max_position_embeddings,
            },
            "languages": self.languages.model_dump(),
            "tokenizer": TOKENIZER,
            "vocab_size": settings.target_size,
            "sentence_pieces": {
                "characters": CHARACTERS,
                "vocab_size": settings.vocab_size,
                "target": TARGET_TOKENIZER if self.separate else None,
            },
            "special_tokens": self.special_tokens.model_dump(),
            "limits": {"max_tokens": self.max_tokens},
        }

    def files(self) -> dict[str, Callable[[Path], object]]:
        """Return the files besides the graphs, by name: a function that writes each."""
        tokenizers = {TOKENIZER: self._pieces.tokenizer(self.vocabulary, self.settings.vocab_size)}
        if self.separate:
            target = self._target_pieces.tokenizer(self.target_vocabulary, self.settings.target_size)
            tokenizers[TARGET_TOKENIZER] = target
        characters = json.dumps(self._pieces.characters(), ensure_ascii=False)
        return {
            **{name: _saver(tokenizer) for name, tokenizer in tokenizers.items()},
            CHARACTERS: lambda path: path.write_text(characters, encoding="utf-8"),
        }

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Translator, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        """Return graphs with int8 products, by the ranges of activations in beam searches on the texts."""
        return quantize_sequences(
            models,
            self._exported,
            self._queries(model, texts),
            tokens=self.special_tokens,
            vocab_size=self.settings.target_size,
            keep=_POSITIONS,
        )

    def agreement(self, float32: Translator, int8: Translator, texts: Sequence[str]) -> Agreement:
        """Compare greedy translations; the difference is that of the probability of a translation's average token."""
        queries = self._queries(float32, texts)
        pairs = [
            (one[0], other[0])
            for one, other in zip(float32.decoder.search(queries), int8.decoder.search(queries), strict=True)
        ]
        same = [one for one in pairs if one[0].tokens == one[1].tokens]
        differences = [abs(math.exp(one.score) - math.exp(other.score)) for one, other in pairs]
        value = len(same) / len(pairs)
        return Agreement(metric="equal greedy translations", value=value, difference=max(differences))

    def extend(self, draft: Draft) -> None:
        samples = self.options.samples
        extend_draft(draft, [*samples.calibration(), *samples.held_out()])

    def card(self) -> Card:
        settings, known = self.settings, self.languages.known_targets()
        return Card(
            network=f"Transformer, {settings.encoder_layers} + {settings.decoder_layers} layers, {settings.d_model} "
            f"hidden units, {settings.encoder_attention_heads} heads, feed-forward {settings.encoder_ffn_dim} "
            f"({settings.activation}), post-norm",
            outputs=f"Translates {self.languages.source} to {', '.join(known)}; vocabulary of {settings.target_size} "
            "SentencePiece tokens",
            limits=f"Sentences of up to {self.max_tokens} tokens are accepted; texts are cut into sentences, which are "
            "translated\nindependently of each other.",
        )

    # ---- comparison with transformers ----

    def largest_difference(self, model: Translator, bundle: Path, texts: Sequence[str]) -> float:
        """Compare the graphs with the module that they were made of, and greedy search with transformers.

        A log-probability is that of any token at any position of a translation. Raises `ImportRefused` also where a
        token of a translation is not the most probable one by transformers.
        """
        transformers = need("transformers")
        found = largest_sequence_difference(model.backend, self._exported, self.model)
        with quiet():
            transformers.utils.logging.disable_progress_bar()
            tokenizer = transformers.MarianTokenizer.from_pretrained(self.source.path, local_files_only=True)
            reference = transformers.MarianMTModel.from_pretrained(
                self.source.path, local_files_only=True, dtype=torch.float32
            )
        self._compare_tokens(tokenizer, texts, self._tokenizer(bundle).encode_batch(texts))
        queries = self._queries(model, texts)
        together = model.decoder.search(queries)
        alone = [model.decoder.search([query])[0] for query in queries]
        for query, *outputs in zip(queries, together, alone, strict=True):
            for hypotheses in outputs:
                found = float(np.maximum(found, self._difference(reference.eval(), query, hypotheses[0])))
        return found

    def _difference(self, reference: Any, query: SourceSequence, best: Hypothesis) -> float:
        """Return the largest difference of a log-probability along a translation."""
        end = self.special_tokens.end
        target = [*best.tokens, *([end] if len(best.tokens) < query.max_tokens else [])]
        ours, theirs = self._log_probabilities(reference, [*query.tokens, end], target)
        chosen = theirs[torch.arange(len(target)), torch.tensor(target)]
        if not bool((theirs.amax(1) - chosen <= TOLERANCE).all()):
            raise ImportRefused(f"greedy search finds another translation than transformers: {best.tokens}")
        average = abs(float(chosen.double().sum()) - best.log_probability) / len(target)
        return float(np.maximum(average, absolute_difference(theirs.numpy(), ours.numpy()).max()))

    @staticmethod
    def _compare_tokens(tokenizer: Any, texts: Sequence[str], found: Sequence[list[int]]) -> None:
        for text, ids in zip(texts, found, strict=True):
            # Not the tokenizer's own call: a text that spells `</s>` or names a language is text here.
            expected = tokenizer.convert_tokens_to_ids(tokenizer.spm_source.encode(text, out_type=str))
            if ids != expected:
                raise ImportRefused(f"{text!r} gets the tokens {ids}, by transformers {expected}")

    def _tokenizer(self, bundle: Path) -> SentencePieceTokenizer:
        return SentencePieceTokenizer.from_files(bundle / TOKENIZER, bundle / CHARACTERS, self.settings.vocab_size)

    @staticmethod
    def _queries(model: Translator, texts: Sequence[str]) -> list[SourceSequence]:
        """Return greedy searches for the first sentences of texts, in the default target language."""
        parts = [part for text in texts for part in model.query(text, 1, truncate=True).parts()[:_SENTENCES]]
        return [replace(part, max_tokens=min(part.max_tokens, _COMPARED_TOKENS)) for part in parts]

    @torch.no_grad()
    def _log_probabilities(self, model: Any, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities `[T, V]` before each token of a target, by this module and by transformers."""
        read = torch.tensor([[self.settings.decoder_start_token_id, *target[:-1]]])
        tokens, length = torch.tensor([source]), torch.tensor([len(source)])
        ours = self.model.output_layer.log_prob(self.model(tokens, length, read)[0])
        logits = model(input_ids=tokens, decoder_input_ids=read).logits[0]
        logits[:, sorted(self.settings.never_generated)] = -torch.inf
        return ours, logits.log_softmax(-1)


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
        known = [*sorted(targets)[:_SHOWN], *(["..."] if len(targets) > _SHOWN else [])]
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
