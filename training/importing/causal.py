"""Import of causal language models: GPT-2, Llama, Mistral, Qwen, GPT-NeoX and Gemma.

A directory has `config.json`, weights and a tokenizer that transformers reads as a file of the library `tokenizers`.
Its head may be one of `training.softmax.huggingface.replace_head`.

Shapes: `T` tokens, `V` tokens of the vocabulary, `d` hidden size.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from models.bundle.contract import SpecialTokens
from models.native import native_errors
from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.causal_results import NextTokens, ScoredToken, TextScore
from models.tasks.causal_tokenizer import CausalTokenizer
from training.bundling.bundle import BundleGraph
from training.bundling.folding import FoldedSoftmax, layer_section
from training.bundling.model_card import Card
from training.bundling.onnx import to_onnx
from training.bundling.onnx_tools import quiet
from training.bundling.verify import absolute_difference
from training.bundling.weight_file import WeightFile
from training.data.tokenization import unknown_token
from training.importing.causal_config import ARCHITECTURE_NAMES, CausalConfig, read_causal_config
from training.importing.causal_weights import read_causal_weights
from training.importing.errors import BY_OWN_IMPORTER, SAVED_AGAIN, ImportRefused
from training.importing.importer import Agreement, Importer, ImportOptions, need, register
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tokenizers import TOKENIZER, reference_tokenizer
from training.networks.causal_transformer import CausalHead, CausalTransformer
from training.softmax import GeneralizedSoftmax
from training.softmax.huggingface import HEAD_OPTIONS, former_class_name, head_class, head_class_name
from training.tasks.causal_language_model.graphs import causal_graphs, network_section
from training.tasks.causal_language_model.quantization import int4_graphs, int8_graphs

__all__ = ["CausalImporter"]

_DEFAULT_TOKENS = 2048
"""Longest text by default, in tokens, where the network has more positions: attention takes the square of memory."""
_MORE_PARAMETERS = 1.05
"""How many times more parameters a configuration may describe than the weights have."""
_HEADS = ("lm_head", "embed_out")
"""Names of output layers in transformers."""
_COMPARED_WORDS = 100
"""Most probable next tokens that are compared after each text."""


class CausalImporter(Importer):
    """Import of a causal language model."""

    task = "causal-language-model"
    advice_on_difference = BY_OWN_IMPORTER
    quantization = "int8-weights"
    int4 = True

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self.class_name = former_class_name(source.architecture)
        """The class of the model in transformers, whatever its head."""
        self._model_class = getattr(need("transformers"), self.class_name)
        self._completed = _completed(self._model_class, source)
        described = self._completed.to_dict()
        options = described.pop(HEAD_OPTIONS, None)
        self.causal: CausalConfig = read_causal_config(self.class_name, described)
        settings = self.causal.settings
        self._reference_tokenizer = reference_tokenizer(source)
        backend = Tokenizer.from_str(self._reference_tokenizer.backend_tokenizer.to_str())
        self.special_tokens = _special_tokens(backend, self._reference_tokenizer, source)
        try:
            self.tokenizer = CausalTokenizer(backend, self.special_tokens)
        except ValueError as error:
            raise ImportRefused(str(error)) from error
        if (largest := max(backend.get_vocab().values())) >= settings.vocab_size:
            raise ImportRefused(
                f"the tokenizer has a token {largest}, vocab_size of {CONFIG} is {settings.vocab_size}; "
                "resize the table of words (model.resize_token_embeddings), or take the model's own tokenizer"
            )
        self.max_tokens = self._max_tokens()
        tensors = source.weights()
        _check_size(self.causal, sum(tensor.numel() for tensor in tensors.values()))
        of_layer = {} if options is None else _taken(tensors)
        self.network, self.head = read_causal_weights(self.class_name, self.causal, tensors)
        self.layer: GeneralizedSoftmax | None = (
            None if options is None else _replaced_head(options, self.head, of_layer)
        )
        """The output layer that `replace_head` made, or None."""

    def _max_tokens(self) -> int:
        """Return the longest text in tokens, without the start token."""
        most = self.causal.settings.positions - (self.special_tokens.start is not None)
        wanted = min(most, _DEFAULT_TOKENS) if self.options.max_tokens is None else self.options.max_tokens
        if not 1 <= wanted <= most:
            raise ImportRefused(f"--max-tokens must lie between 1 and {most}, not {wanted}")
        return wanted

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        exported = causal_graphs(self.network, self.head if self.layer is None else FoldedSoftmax(self.layer))
        return {name: BundleGraph(graph.contract, to_onnx(graph, weights)) for name, graph in exported.items()}

    def files(self) -> Mapping[str, Callable[[Path], object]]:
        return {TOKENIZER: self.tokenizer.save}

    def config(self) -> Mapping[str, object]:
        return {
            "network": network_section(self.class_name, self.causal.settings),
            "tokenizer": TOKENIZER,
            "vocab_size": self.tokenizer.vocab_size,
            "special_tokens": self.special_tokens.model_dump(),
            "limits": {"max_tokens": self.max_tokens},
        }

    def softmax(self) -> Mapping[str, object]:
        if self.layer is not None:
            return layer_section(self.layer)
        return {"kernels": [{"name": "lin"}], "softcap": self.causal.settings.final_softcap}

    def card(self) -> Card:
        settings = self.causal.settings
        return Card(
            network=f"causal Transformer, {len(settings.layers)} layers, {settings.hidden_size} hidden units, "
            f"{settings.heads} heads ({settings.key_value_heads} of keys and values), "
            f"feed-forward {settings.inner_size} ({settings.activation})",
            outputs=f"Probabilities of the next of {self.tokenizer.vocab_size} subword tokens",
            limits=f"Each text may have up to {self.max_tokens} tokens. Its end is not scored. Probabilities are "
            "those of texts\nlike its training data, whose biases it repeats.",
        )

    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: object, texts: object
    ) -> Mapping[str, onnx.ModelProto]:
        """Return the graphs of `int8_graphs`, which need no ranges of activations."""
        del model, texts
        return int8_graphs(models)

    def quantize_int4(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        return int4_graphs(models)

    def agreement(self, float32: CausalLanguageModel, lossy: CausalLanguageModel, texts: Sequence[str]) -> Agreement:
        """Compare the most probable token at each position, and the probabilities of the texts' tokens."""
        one, other = (
            [each for score in model.score(texts, explain=1, truncate=True) for each in score.tokens if each.scored]
            for model in (float32, lossy)
        )
        pairs = list(zip(one, other, strict=True))
        same = [first.alternatives[0].token == second.alternatives[0].token for first, second in pairs]
        return Agreement(
            metric="same most probable next token as float32",
            value=sum(same) / max(1, len(same)),
            difference=max((abs(_probability(first) - _probability(second)) for first, second in pairs), default=0.0),
            others={"perplexity in float32": _perplexity(one), "perplexity": _perplexity(other)},
        )

    # ---- comparison with transformers ----

    def largest_difference(self, model: CausalLanguageModel, bundle: Path, texts: Sequence[str]) -> float:
        """Compare the log-probabilities of the tokens of each text, and of the most probable ones after it."""
        del bundle
        texts = [text for text in texts if text]
        self._compare_tokens(texts)
        reference = self._reference()
        together = list(zip(model.score(texts, truncate=True), _next(model, texts), strict=True))
        alone = [(model.score([text], truncate=True)[0], _next(model, [text])[0]) for text in texts]
        found = 0.0
        for text, *results in zip(texts, together, alone, strict=True):
            tokens = self.tokenizer.encode(text)
            scored = self._reference_log_probabilities(reference, tokens[: self.max_tokens])
            following = self._reference_log_probabilities(reference, tokens[-self.max_tokens :])[-1]
            for score, words in results:
                found = float(np.maximum(found, self._difference(scored, tokens, score)))
                found = float(np.maximum(found, _next_difference(following, words)))
        return found

    def _compare_tokens(self, texts: Sequence[str]) -> None:
        """Raise `ImportRefused` where a text has other tokens than by transformers; special tokens are text here."""
        spelled = self._reference_tokenizer.all_special_tokens
        for text in texts:
            if any(token in text for token in spelled):
                continue
            expected = self._reference_tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
            if (found := self.tokenizer.encode(text)) != expected:
                raise ImportRefused(
                    f"{text[:80]!r} gets the tokens {found[:20]}, but {expected[:20]} in transformers; {SAVED_AGAIN}"
                )

    def _reference(self) -> Any:
        need("transformers").utils.logging.disable_progress_bar()
        model_class = self._model_class if self.layer is None else head_class(self._model_class)
        with quiet():
            model = model_class.from_pretrained(
                None,
                config=self._completed,
                state_dict=self.source.weights(),
                dtype=torch.float32,
                attn_implementation="eager",
            )
        return model.eval()

    @torch.no_grad()
    def _reference_log_probabilities(self, reference: Any, tokens: Sequence[int]) -> Tensor:
        """Return the log-probabilities of what follows each token, the start token included: `[T, V]`."""
        before = [] if self.special_tokens.start is None else [self.special_tokens.start]
        logits = reference(input_ids=torch.tensor([[*before, *tokens]]), use_cache=False).logits[0]
        found: Tensor = logits.float().log_softmax(-1)
        return found

    def _difference(self, expected: Tensor, tokens: Sequence[int], score: TextScore) -> float:
        """Return the largest difference of a token's log-probability."""
        ours = np.array([each.log_probability for each in score.tokens if each.log_probability is not None], np.float32)
        targets = tokens[len(score.tokens) - len(ours) : len(score.tokens)]
        if not len(ours):
            return 0.0
        theirs: NDArray[np.float32] = expected[torch.arange(len(ours)), torch.tensor(targets)].numpy()
        return float(absolute_difference(theirs, ours).max())


for _name in ARCHITECTURE_NAMES:
    register(_name)(CausalImporter)
    register(head_class_name(_name))(CausalImporter)


def _taken(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Remove the parameters of a `SoftmaxHead` other than its class vectors from tensors, and return them."""
    found = {}
    for name in list(tensors):
        module, _, parameter = name.partition(".")
        if module in _HEADS and parameter != "weight":
            found[parameter] = tensors.pop(name)
    return found


def _replaced_head(options: object, head: CausalHead, others: Mapping[str, Tensor]) -> GeneralizedSoftmax:
    """Return the output layer that `config.json` describes, with the class vectors of a head, and other parameters.

    Raises `ImportRefused` for options and parameters that do not fit, and for tokens of probability 0.
    """
    weight = head.linear.weight
    assert isinstance(weight, nn.Parameter)
    try:
        layer = GeneralizedSoftmax(*weight.shape, **options)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ImportRefused(f"{HEAD_OPTIONS} in {CONFIG}: {error}") from error
    if layer.has_zeros:
        raise ImportRefused(
            f"{HEAD_OPTIONS} in {CONFIG}: sparse_k and alpha above 1 give tokens the probability 0, and bundles of "
            "causal language models have finite log-probabilities only"
        )
    layer.weight = weight
    missing, unexpected = layer.load_state_dict(others, strict=False)
    wrong = [*(name for name in missing if name != "weight"), *unexpected]
    if wrong:
        raise ImportRefused(
            f"the weights do not fit {HEAD_OPTIONS} in {CONFIG}: {', '.join(sorted(wrong))}; {SAVED_AGAIN}"
        )
    return layer.requires_grad_(False).eval()


def _probability(token: ScoredToken) -> float:
    assert token.log_probability is not None
    return math.exp(token.log_probability)


def _perplexity(tokens: Sequence[ScoredToken]) -> float:
    """Return the perplexity of texts a token, of the tokens that are scored."""
    found = [each.log_probability for each in tokens if each.log_probability is not None]
    return math.exp(-sum(found) / max(1, len(found)))


def _next(model: CausalLanguageModel, texts: Sequence[str]) -> list[NextTokens]:
    found = model.next_words(texts, _COMPARED_WORDS, truncate=True, unit="token")
    return [each for each in found if isinstance(each, NextTokens)]


def _next_difference(expected: Tensor, found: NextTokens) -> float:
    """Return the largest difference of a log-probability of the tokens that are found to be the most probable ones.

    expected `[V]`. The k-th best log-probabilities are compared as well, so that none is left out.
    """
    values = torch.tensor([each.log_probability for each in found.words])
    same = expected[torch.tensor([each.token for each in found.words])]
    best = expected.topk(len(values)).values
    return float(torch.maximum((same - values).abs(), (best - values).abs()).max())


def _completed(model_class: Any, source: SourceDirectory) -> Any:
    """Return the configuration as transformers completes it; raises `ImportRefused`."""
    try:
        return model_class.config_class.from_dict(dict(source.config))
    except Exception as error:  # its strict checks raise exceptions of several libraries
        raise ImportRefused(f"{CONFIG}: {error}; {BY_OWN_IMPORTER}") from error


def _check_size(config: CausalConfig, stored: int) -> None:
    """Raise `ImportRefused` where a configuration describes far more parameters than are stored."""
    with torch.device("meta"):
        parts = [CausalTransformer(config.settings), *([] if config.tied else [CausalHead(config.settings)])]
    wanted = sum(parameter.numel() for part in parts for parameter in part.parameters())
    if wanted > stored * _MORE_PARAMETERS:
        raise ImportRefused(f"{CONFIG} describes {wanted} parameters, the weights have {stored}; {SAVED_AGAIN}")


@native_errors()
def _special_tokens(backend: Tokenizer, reference: Any, source: SourceDirectory) -> SpecialTokens:
    """Return the tokens with a meaning: the end, the unknown token, and the start, where texts begin with one.

    The start is the token that the tokenizer puts before a text, or else the one that `tokenizer_config.json` names.
    """
    bare, framed = (backend.encode("a", add_special_tokens=added).ids for added in (False, True))
    before = framed[: len(framed) - len(bare)]
    if framed[len(before) :] != bare or len(before) > 1:
        raise ImportRefused(
            f"the tokenizer must put one token at most before a text and none after it: {bare} becomes {framed} with "
            "special tokens; set its post_processor to that"
        )
    end = reference.eos_token_id
    if end is None:
        stated = source.config.get("eos_token_id")
        end = stated[0] if isinstance(stated, list) and stated else stated
    if not isinstance(end, int):
        raise ImportRefused(f"neither the tokenizer nor {CONFIG} names the end; state eos_token there")
    start = before[0] if before else reference.bos_token_id
    unknown = unknown_token(backend)
    return SpecialTokens(unknown=end if unknown is None else unknown, end=end, start=start)
