"""What imports of translation models have in common: graphs, comparison with transformers, int8.

Shapes: `T` tokens of a target, `V` tokens of the target's vocabulary.
"""

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import onnx
import torch
from torch import Tensor

from models.bundle.contract import SpecialTokens
from models.decoding.beam_search import Hypothesis
from models.decoding.sequence_to_sequence import SourceSequence
from models.tasks.translation import Languages, Translator
from training.bundling.bundle import BundleGraph, Draft
from training.bundling.model_card import Card
from training.bundling.onnx import to_onnx
from training.bundling.onnx_tools import quiet
from training.bundling.verify import TOLERANCE, absolute_difference
from training.bundling.weight_file import WeightFile
from training.importing.errors import BY_OWN_IMPORTER, ImportRefused
from training.importing.importer import Agreement, Importer, need
from training.importing.translation_settings import BartSettings
from training.networks.translation_model import TranslationModel
from training.tasks.sequence_export import compared_runs, largest_run_difference, quantize_sequences
from training.tasks.translation.alignment import extend_draft
from training.tasks.translation.graphs import translation_graphs

__all__ = ["TOKENIZER", "NetworkSizes", "TranslationImporter"]

TOKENIZER = "tokenizer.json"
"""File of the bundle."""

_FLOAT32 = (
    "network.positions",
    "network.target_positions",
    "network.biases.encoder",
    "network.biases.decoder",
)
"""Tables of positions, which stay float32 in int8 graphs."""
_COMPARED_TOKENS = 64
"""Longest outputs that are compared, in tokens; models with random weights may never end by themselves."""
_SENTENCES = 3
"""Sentences of a text that are compared."""
_TARGETS = 5
"""Target languages that the compared texts are translated into, in turns."""
_SHOWN = 12
"""Languages that a message or a model card lists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkSizes:
    """The sizes of a network, as the manifest and the model card state them."""

    hidden_size: int
    inner_size: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    norm: Literal["pre", "post"]
    activation: str
    positions: int
    vocab_size: int
    """Tokens of the target."""

    @classmethod
    def of_bart(cls, settings: BartSettings, norm: Literal["pre", "post"], vocab_size: int) -> Self:
        """Return the sizes of a model that follows fairseq's names."""
        return cls(
            hidden_size=settings.d_model,
            inner_size=settings.encoder_ffn_dim,
            heads=settings.encoder_attention_heads,
            encoder_layers=settings.encoder_layers,
            decoder_layers=settings.decoder_layers,
            norm=norm,
            activation=settings.activation,
            positions=settings.max_position_embeddings,
            vocab_size=vocab_size,
        )

    def section(self) -> dict[str, object]:
        """Return the section `network` of the manifest."""
        return {
            "kind": "transformer",
            "hidden_size": self.hidden_size,
            "inner_size": self.inner_size,
            "heads": self.heads,
            "encoder_layers": self.encoder_layers,
            "decoder_layers": self.decoder_layers,
            "norm": self.norm,
            "activation": self.activation,
            "positions": self.positions,
        }


class TranslationImporter(Importer):
    """Import of a translation model, an encoder-decoder Transformer of transformers."""

    task = "translation"
    advice_on_difference = BY_OWN_IMPORTER
    reference_class: ClassVar[str]
    """The class of transformers that the model is compared with."""
    sizes: NetworkSizes
    languages: Languages
    special_tokens: SpecialTokens
    never_generated: frozenset[int]
    """Tokens that no output has."""
    max_tokens: int
    """Longest sentence in tokens, without its end and the tokens that name languages."""

    @abc.abstractmethod
    def read_model(self) -> TranslationModel:
        """Return the model of the directory; raises `ImportRefused` where a weight is not as expected."""

    @abc.abstractmethod
    def compare_tokens(self, bundle: Path, texts: Sequence[str]) -> None:
        """Raise `ImportRefused` where a text has other tokens than in transformers."""

    def stated(self) -> dict[str, object]:
        """Return `config.json`, with the `bad_words_ids` of `generation_config.json` where that has some."""
        generation = self.source.json("generation_config.json", optional=True)
        words = generation.get("bad_words_ids") or self.source.config.get("bad_words_ids")
        return {**self.source.config, "bad_words_ids": words}

    def vocabulary(self) -> Mapping[str, object]:
        """Return the fields of the manifest's section that say more of the vocabulary."""
        return {}

    def chosen_max_tokens(self) -> int:
        """Return the longest sentence that fits the positions, or the one that is wanted; raises `ImportRefused`."""
        most = self.sizes.positions - 1 - self.languages.longest_prefix
        wanted = most if self.options.max_tokens is None else self.options.max_tokens
        if not 1 <= wanted <= most:
            raise ImportRefused(f"--max-tokens must lie between 1 and {most}, not {wanted}")
        return wanted

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        model = self.read_model()
        exported = translation_graphs(model)
        self._runs = compared_runs(exported, model)
        self._contracts = {name: graph.contract for name, graph in exported.items()}
        return {name: BundleGraph(graph.contract, to_onnx(graph, weights)) for name, graph in exported.items()}

    def config(self) -> dict[str, object]:
        """Return the section of the manifest."""
        return {
            "network": self.sizes.section(),
            "languages": self.languages.model_dump(exclude_defaults=True),
            "tokenizer": TOKENIZER,
            "vocab_size": self.sizes.vocab_size,
            "special_tokens": self.special_tokens.model_dump(),
            "limits": {"max_tokens": self.max_tokens},
            **self.vocabulary(),
        }

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Translator, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        """Return graphs with int8 products, by the ranges of activations in beam searches on the texts."""
        return quantize_sequences(
            models,
            self._contracts,
            self._queries(model, texts),
            tokens=self.special_tokens,
            vocab_size=self.sizes.vocab_size,
            keep=_FLOAT32,
        )

    def agreement(self, float32: Translator, lossy: Translator, texts: Sequence[str]) -> Agreement:
        """Compare greedy translations; the difference is that of the probability of a translation's average token."""
        queries = self._queries(float32, texts)
        pairs = [
            (one[0], other[0])
            for one, other in zip(float32.decoder.search(queries), lossy.decoder.search(queries), strict=True)
        ]
        same = [one for one in pairs if one[0].tokens == one[1].tokens]
        differences = [abs(math.exp(one.score) - math.exp(other.score)) for one, other in pairs]
        value = len(same) / len(pairs)
        return Agreement(metric="equal greedy translations", value=value, difference=max(differences))

    def extend(self, draft: Draft) -> None:
        samples = self.options.samples
        extend_draft(draft, [*samples.calibration(), *samples.held_out()])

    def card(self) -> Card:
        sizes = self.sizes
        sources, targets = (
            ", ".join([*known[:_SHOWN], *([f"{len(known) - _SHOWN} others"] if len(known) > _SHOWN else [])])
            for known in (self.languages.known_sources(), self.languages.known_targets())
        )
        return Card(
            network=f"Transformer, {sizes.encoder_layers} + {sizes.decoder_layers} layers, {sizes.hidden_size} "
            f"hidden units, {sizes.heads} heads, feed-forward {sizes.inner_size} ({sizes.activation}), "
            f"{sizes.norm}-norm",
            outputs=f"Translates {sources} to {targets}; vocabulary of {sizes.vocab_size} SentencePiece tokens",
            limits=f"Sentences of up to {self.max_tokens} tokens are accepted; texts are cut into sentences, which are "
            "translated\nindependently of each other.",
        )

    # ---- comparison with transformers ----

    def compare(self, draft: Draft, texts: Sequence[str]) -> float:
        """Compare the graphs with the module that they were made of, and greedy search with transformers.

        A log-probability is that of any token at any position of a translation. Raises `ImportRefused` also where a
        token of a translation is not the most probable one by transformers. Of the graphs, the module and the model of
        transformers, two at most are in memory at a time.
        """
        model = draft.load()
        found = self.largest_difference(model, draft.directory, texts)
        searches = self._searched(model, texts)
        del model  # two at most
        with torch.no_grad():
            module, reference = self.read_model(), self._reference()
            for query, best in searches:
                found = float(np.maximum(found, self._difference(module, reference, query, best)))
        return found

    def largest_difference(self, model: Translator, bundle: Path, texts: Sequence[str]) -> float:
        """Compare tokens with those of transformers, and the graphs with the module that they were made of."""
        self.compare_tokens(bundle, texts)
        return largest_run_difference(model.backend, self._runs)

    def _searched(self, model: Translator, texts: Sequence[str]) -> list[tuple[SourceSequence, Hypothesis]]:
        """Return greedy translations, of each sentence in a batch and alone."""
        queries = self._queries(model, texts)
        together = model.decoder.search(queries)
        alone = [model.decoder.search([query])[0] for query in queries]
        return [(query, found[0]) for query, *both in zip(queries, together, alone, strict=True) for found in both]

    def _reference(self) -> Any:
        transformers = need("transformers")
        with quiet():
            transformers.utils.logging.disable_progress_bar()
            reference = getattr(transformers, self.reference_class).from_pretrained(
                self.source.path, local_files_only=True, dtype=torch.float32
            )
        return reference.eval()

    def _difference(self, module: TranslationModel, reference: Any, query: SourceSequence, best: Hypothesis) -> float:
        """Return the largest difference of a log-probability along a translation."""
        end, forced = self.special_tokens.end, len(query.options.prefix)
        target = [*best.tokens, *([end] if len(best.tokens) < query.max_tokens else [])]
        ours, theirs = self._log_probabilities(module, reference, [*query.tokens, end], target)
        chosen = theirs[torch.arange(len(target)), torch.tensor(target)]
        if not bool((theirs.amax(1) - chosen <= TOLERANCE)[forced:].all()):
            raise ImportRefused(
                f"greedy search finds another translation than transformers: {best.tokens}; {BY_OWN_IMPORTER}"
            )
        average = abs(float(chosen[forced:].double().sum()) - best.log_probability) / len(target)
        return float(np.maximum(average, absolute_difference(theirs.numpy(), ours.numpy()).max()))

    @staticmethod
    def _queries(model: Translator, texts: Sequence[str]) -> list[SourceSequence]:
        """Return greedy searches for the first sentences of texts, into several target languages in turns."""
        languages = model.config.languages
        codes = [None, *(code for code in languages.known_targets() if code != languages.target)][:_TARGETS]
        parts = [
            part
            for number, text in enumerate(texts)
            for part in model.query(text, 1, truncate=True, target_language=codes[number % len(codes)]).parts()[
                :_SENTENCES
            ]
        ]
        return [replace(part, max_tokens=min(part.max_tokens, _COMPARED_TOKENS)) for part in parts]

    def _log_probabilities(
        self, module: TranslationModel, reference: Any, source: list[int], target: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities `[T, V]` before each token of a target, by this module and by transformers."""
        tokens = self.special_tokens
        read = torch.tensor([[tokens.end if tokens.start is None else tokens.start, *target[:-1]]])
        inputs, length = torch.tensor([source]), torch.tensor([len(source)])
        ours = module.output_layer.log_prob(module(inputs, length, read)[0])
        logits = reference(input_ids=inputs, decoder_input_ids=read).logits[0]
        logits[:, sorted(self.never_generated)] = -torch.inf
        return ours, logits.log_softmax(-1)
