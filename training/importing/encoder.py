"""Encoders of transformers, read from a directory: module, tokenizer, and the graph of its hidden states or scores.

Those of `_FUSED` are exported with the attention of this project's graphs; torch exports other modules as they are.

Shapes: `B` texts, `T` tokens.
"""

import importlib.metadata
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import onnx
import torch
from pydantic import BaseModel, Field, ValidationError
from tokenizers import Tokenizer
from torch import Tensor, nn

from models.backend import Array
from models.bundle.contract import SpecialTokens
from models.bundle.manifest import Graph
from models.native import native_errors
from models.text.encoding import EncodedText, EncoderTexts, Pairs, encoder_inputs
from models.text.tokenization import EncoderTokenizer
from training.bundling.bundle import BundleGraph
from training.bundling.calibration import RangeRecorder
from training.bundling.graphs import ExportGraph, Tensors, random_sequences
from training.bundling.onnx import to_onnx
from training.bundling.onnx_tools import quiet
from training.bundling.quantize import matrix_products, quantize_int8_static
from training.bundling.weight_file import WeightFile
from training.importing.encoder_graph import EncoderModule
from training.importing.errors import BY_ONNX, SAVED_AGAIN, ImportRefused, described
from training.importing.importer import ImportOptions, need
from training.importing.remote_code import foreign_weights, known_fields, names_code
from training.importing.samples import sample_pairs
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tokenizers import compare_pairs, compare_tokens, encoder_tokenizer, reference_tokenizer

__all__ = [
    "Encoder",
    "TextReader",
    "calibration_batches",
    "correlation",
    "encoder_config",
    "encoder_tensors",
    "labels_of",
    "pairs_of",
    "quantized",
]

_MORE_PARAMETERS = 1.05
"""How many times more parameters a configuration may describe than the weights have."""
_DEFAULT_TOKENS = 2048
"""Longest text by default, in tokens, where the network has more positions: attention takes the square of memory."""
_LONGEST = 512
"""Longest text where neither the configuration nor the tokenizer says how long texts may be."""
_CALIBRATION_BATCH = 32
_LONG_TEXT = 2000
"""Characters from which on a sample text is not compared in pairs."""
_FUSED = ("bert", "camembert", "deberta-v2", "distilbert", "electra", "roberta", "xlm-roberta")
"""Kinds of models whose attention is that of this project's graphs."""
_SAVED_TOGETHER = f"weights and {CONFIG} must be of one model: {SAVED_AGAIN}"
_ROBERTA = ("camembert", "roberta", "xlm-roberta")
"""Kinds whose positions are numbered from that after the padding's."""


class _Sizes(BaseModel):
    """The fields of a configuration that an import depends on, within the means of a machine."""

    vocab_size: Annotated[int, Field(ge=1, le=1 << 23)]
    hidden_size: Annotated[int, Field(ge=1, le=1 << 15)]
    inner_size: Annotated[int, Field(ge=1, le=1 << 17)]
    layers: Annotated[int, Field(ge=1, le=512)]
    heads: Annotated[int, Field(ge=1, le=512)]
    positions: Annotated[int, Field(ge=3, le=1 << 17)]
    """Rows of the table of positions."""
    labels: Annotated[int, Field(ge=1, le=1 << 20)]
    padding: Annotated[int, Field(ge=0)] | None
    is_decoder: Literal[False]
    position_embedding_type: Literal["absolute"]
    quantization_config: None


class TextReader(Protocol):
    """What computes the hidden states or the number of a text: a module of transformers, or a graph."""

    @property
    def tokenizer(self) -> EncoderTokenizer: ...
    @property
    def special(self) -> SpecialTokens: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def pairs(self) -> Pairs | None: ...
    @property
    def network(self) -> Mapping[str, object]: ...
    @property
    def network_line(self) -> str: ...


class Encoder:
    """A module of transformers that reads texts, with its tokenizer."""

    def __init__(self, source: SourceDirectory, options: ImportOptions, model_class: Any = None) -> None:
        """`model_class` is by default the class that `config.json` names. Raises `ImportRefused`."""
        self._source = source
        self.model_class = _checked_class(source) if model_class is None else model_class
        self.config = encoder_config(self.model_class, source)
        self.fused = self.config.model_type in _FUSED
        sizes = _sizes(self.config) if self.fused else None
        self._sizes = sizes
        self.reference_tokenizer = reference_tokenizer(source)
        self.tokenizer, self.special = encoder_tokenizer(self.reference_tokenizer.backend_tokenizer)
        if self.tokenizer.vocab_size > self.config.vocab_size:
            raise ImportRefused(
                f"the tokenizer has {self.tokenizer.vocab_size} tokens, more than vocab_size of {CONFIG}, "
                f"{self.config.vocab_size}; resize the table of words (model.resize_token_embeddings), or take the "
                "model's own tokenizer"
            )
        if sizes is not None:
            self._positions = sizes.positions - (self._first_position() or 0)
            stated = self.reference_tokenizer.model_max_length
            self.max_tokens = _max_tokens(self._positions, stated, options.max_tokens)
        self.model = _load(self.model_class, self.config, source)
        if sizes is None:
            self.max_tokens = self._longest(options.max_tokens)
            self._positions = self.max_tokens
        self.pairs = self._pairs()

    def _first_position(self) -> int | None:
        """Return the number of the first token's position; None where the model numbers positions itself."""
        if not self.fused or self.config.model_type == "deberta-v2":
            return None
        if self.config.model_type not in _ROBERTA:
            return 0
        if self.config.pad_token_id is None:
            raise ImportRefused(f"{CONFIG} has no pad_token_id, after which positions are numbered; state it there")
        return int(self.config.pad_token_id) + 1

    def _longest(self, wanted: int | None) -> int:
        """Return the longest text: the wanted, or that of configuration and tokenizer which the model computes."""
        positions, stated = getattr(self.config, "max_position_embeddings", None), self.reference_tokenizer
        both = (positions, stated.model_max_length)
        sizes = [each for each in both if isinstance(each, int) and 3 <= each <= 1 << 17]
        longest = wanted or min(_DEFAULT_TOKENS, *sizes, *([] if sizes else [_LONGEST]))
        padding = getattr(self.config, "pad_token_id", None)
        offset = padding + 1 if isinstance(padding, int) else 0  # of positions that are numbered after the padding's
        for each in [longest] if wanted else [longest, longest - offset]:
            if each > 2 and self._computes(each):
                return each
        raise ImportRefused(
            f"{self.model_class.__name__} fails on a text of {longest} tokens; --max-tokens sets another length"
        )

    def _computes(self, length: int) -> bool:
        start, end = self.special.start, self.special.end
        try:
            self.reference(EncodedText((end if start is None else start, *[end] * (length - 1)), length))
        except (IndexError, RuntimeError, ValueError):
            return False
        return True

    def _pairs(self) -> Pairs | None:
        kinds = getattr(self.config, "type_vocab_size", 0) or 0
        takes = "token_type_ids" in inspect.signature(self.model.forward).parameters
        given = "token_type_ids" in self.reference_tokenizer(["a"], ["b"])  # else the model was not trained with them
        return pairs_of(
            self.reference_tokenizer.backend_tokenizer, self.special, segments=takes and given and kinds > 1
        )

    @property
    def network(self) -> Mapping[str, object]:
        """The section of the manifest."""
        names = ("hidden_size", "inner_size", "layers", "heads")
        sizes = dict.fromkeys(names) if self._sizes is None else self._sizes.model_dump(include=set(names))
        architecture = self.model_class.__name__
        return {"kind": "imported", "architecture": architecture, **sizes, "positions": self._positions}

    @property
    def network_line(self) -> str:
        """A line of the model card."""
        sizes = self._sizes
        if sizes is None:
            return f"`{self.model_class.__name__}` of transformers, exported by torch as it is"
        return (
            f"{sizes.layers} layers, {sizes.hidden_size} hidden units, {sizes.heads} heads, "
            f"feed-forward {sizes.inner_size}"
        )

    def graph(
        self, weights: WeightFile, head: nn.Module, described_graph: Graph, further: Sequence[Tensor] = ()
    ) -> BundleGraph:
        """Return the graph of the encoder and a head; `further` are examples of the head's own inputs.

        The head takes the output of transformers, the lengths `[B]`, and its own inputs. Raises `ImportRefused` where
        torch cannot export the module.
        """
        segments = self.pairs is not None and self.pairs.segments
        module = EncoderModule(
            self.model, head, fused=self.fused, first_position=self._first_position(), segments=segments
        ).eval()
        generator = torch.Generator().manual_seed(0)
        tokens, lengths = random_sequences(self.tokenizer.vocab_size, 3, min(7, self._positions), generator)
        second = [torch.clamp(lengths - 1, min=1)] if segments else []
        graph = ExportGraph(module, described_graph, (tokens, lengths, *second, *further))
        try:
            return BundleGraph(described_graph, to_onnx(graph, weights))
        except Exception as error:  # torch's exporter raises exceptions of many kinds
            if self.fused:
                raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            name = self.model_class.__name__
            raise ImportRefused(f"torch cannot export {name} to ONNX ({reason}); {BY_ONNX}") from error

    def compare_tokens(self, tokenizer: EncoderTokenizer, texts: Sequence[str]) -> None:
        """Raise `ImportRefused` where a text, or a pair of texts, has other tokens than in transformers."""
        compare_tokens(tokenizer, self.reference_tokenizer, texts)
        if self.pairs is not None:
            pairs = sample_pairs([text for text in texts if len(text) < _LONG_TEXT])
            ours = EncoderTexts(tokenizer, sys.maxsize, self.config.vocab_size, self.pairs)
            compare_pairs(ours, self.reference_tokenizer, pairs)

    @torch.no_grad()
    def reference(self, text: EncodedText) -> Any:
        """Return the output of transformers for one text, or one pair."""
        tokens = torch.tensor([text.tokens])
        options: dict[str, Tensor] = {"attention_mask": torch.ones_like(tokens)}
        if text.second < len(text.tokens) and self.pairs is not None and self.pairs.segments:
            options["token_type_ids"] = (torch.arange(tokens.shape[1]) >= text.second).long()[None]
        return self.model(input_ids=tokens, **options)


def encoder_tensors(pairs: Pairs | None) -> Tensors:
    """Return the inputs of a graph that reads texts, or pairs of texts, as `encoder_inputs` makes them."""
    inputs: dict[str, tuple[str, tuple[str | int, ...]]] = {
        "tokens": ("int64", ("batch", "steps")),
        "lengths": ("int64", ("batch",)),
    }
    return {**inputs, "second": ("int64", ("batch",))} if pairs is not None and pairs.segments else inputs


class _Encoded(Protocol):
    @property
    def encoded(self) -> EncodedText: ...


def calibration_batches(queries: Sequence[_Encoded], pairs: Pairs | None) -> Iterator[dict[str, Array]]:
    """Yield the inputs of graphs for queries, those of similar lengths together."""
    texts = sorted((query.encoded for query in queries), key=lambda text: len(text.tokens))
    for first in range(0, len(texts), _CALIBRATION_BATCH):
        yield encoder_inputs(texts[first : first + _CALIBRATION_BATCH], pairs)


def quantized(
    models: Mapping[str, onnx.ModelProto], name: str, batches: Iterable[Mapping[str, Array]], output: str
) -> Mapping[str, onnx.ModelProto]:
    """Return the graphs with int8 products, by ranges that `output` of the graph `name` needs on batches.

    Raises `ImportRefused` where there are no products to change.
    """
    if not any(matrix_products(each) for each in models.values()):
        raise ImportRefused(
            "the graph has no products with float32 matrices, so that int8 would change nothing; import it without"
        )
    recorder = RangeRecorder(models)
    for inputs in batches:
        recorder.run(name, inputs, [output])
    return {each: quantize_int8_static(model, recorder.ranges(each)) for each, model in models.items()}


def correlation(one: Array, other: Array) -> float:
    """Return Pearson's correlation of two rows of numbers, `[N]`.

    It is 1 where the first row has no two different numbers, and else 0 where the other one has none.
    """
    if len(one) < 2 or one.std() == 0:
        return 1.0
    return float(np.corrcoef(one, other)[0, 1]) if other.std() > 0 else 0.0


@native_errors()
def pairs_of(tokenizer: Tokenizer, special: SpecialTokens, *, segments: bool) -> Pairs | None:
    """Return how a tokenizer joins two texts; None where it does not, or in another way than the service can.

    `segments` says whether the model tells the texts apart by the types of tokens.
    """
    first, second = (tokenizer.encode(text, add_special_tokens=False).ids for text in ("a", "b"))
    whole = tokenizer.encode("a", "b")
    start = tokenizer.encode("a").ids[0]
    place = len(whole.ids) - len(second) - 1
    between = whole.ids[1 + len(first) : place]
    if whole.ids != [start, *first, *between, *second, special.end] or not between:
        return None
    segments = segments and any(whole.type_ids)  # the types are equal in RoBERTa
    if segments and whole.type_ids != [0] * place + [1] * (len(second) + 1):
        return None
    return Pairs(between=tuple(between), segments=segments)


def encoder_config(model_class: Any, source: SourceDirectory) -> Any:
    """Return the configuration of transformers; raises `ImportRefused` for fields that its class refuses."""
    try:
        return model_class.config_class.from_dict(known_fields(model_class, source))
    except ImportRefused:
        raise
    except Exception as error:  # its strict checks raise exceptions of several libraries
        raise ImportRefused(f"{CONFIG}: {error}; correct it there, or {BY_ONNX}") from error


def labels_of(source: SourceDirectory) -> int:
    """Return the number of labels that a configuration states, 2 where it states none, as transformers has it."""
    labels = source.config.get("id2label")
    found = len(labels) if isinstance(labels, dict) else source.config.get("num_labels", 2)
    return found if isinstance(found, int) else 2


def _sizes(config: Any) -> _Sizes:
    """Return the checked sizes of a configuration of transformers, whose names it translates to those of BERT."""
    try:
        return _Sizes(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            inner_size=getattr(config, "intermediate_size", getattr(config, "hidden_dim", None)),
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            positions=config.max_position_embeddings,
            labels=config.num_labels,
            padding=config.pad_token_id,
            is_decoder=getattr(config, "is_decoder", False),
            position_embedding_type=getattr(config, "position_embedding_type", None) or "absolute",
            quantization_config=getattr(config, "quantization_config", None),
        )
    except ValidationError as error:
        raise ImportRefused(f"{CONFIG}: {described(error)}; {BY_ONNX}") from error


def _max_tokens(positions: int, stated: object, wanted: int | None) -> int:
    if wanted is not None and not 2 < wanted <= positions:
        raise ImportRefused(f"--max-tokens must be from 3 to {positions}, the positions of the model, not {wanted}")
    return wanted or min(positions, _DEFAULT_TOKENS, stated if isinstance(stated, int) and stated > 2 else positions)


def _checked_class(source: SourceDirectory) -> Any:
    """Return the class that `config.json` names; raises `ImportRefused` for one that is no encoder."""
    config, name = source.config, source.architecture
    transformers = need("transformers")
    model_class = getattr(transformers, name, None)
    if model_class is None or not hasattr(model_class, "config_class"):
        version = importlib.metadata.version("transformers")
        code = f"{CONFIG} names code for it, which is not run, and " if names_code(source) else ""
        raise ImportRefused(f"{code}transformers {version} has no class {name}; {BY_ONNX}")
    kind = model_class.config_class.model_type
    if kind in _FUSED:
        return model_class
    if config.get("is_encoder_decoder") or config.get("is_decoder"):
        raise ImportRefused(f"{name} classifies by a decoder, whose padding the service does not know; {BY_ONNX}")
    kinds = need("transformers.models.auto.modeling_auto")
    if kind in kinds.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in kinds.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise ImportRefused(f"{name} is a causal model, which classifies by the last token of a text; {BY_ONNX}")
    return model_class


def _load(model_class: Any, config: Any, source: SourceDirectory) -> Any:
    """Return the model in float32; raises `ImportRefused` where the weights are not those that it needs."""
    tensors = source.weights()
    with torch.device("meta"):
        wanted = sum(parameter.numel() for parameter in model_class(config).parameters())
    stored = sum(tensor.numel() for tensor in tensors.values())
    if wanted > stored * _MORE_PARAMETERS:
        raise ImportRefused(f"{CONFIG} describes {wanted} parameters, the weights have {stored}; {_SAVED_TOGETHER}")
    need("transformers").utils.logging.disable_progress_bar()
    try:
        with quiet():
            model, report = model_class.from_pretrained(
                None,
                config=config,
                state_dict=tensors,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
            )
    except (RuntimeError, ValueError, TypeError) as error:
        raise ImportRefused(f"the weights do not fit {CONFIG}: {error}; {_SAVED_TOGETHER}") from error
    if missing := sorted(name for name in report["missing_keys"] if not _unused(model, name)):
        more = " and others" if len(missing) > 5 else ""
        raise ImportRefused(f"the weights lack {', '.join(missing[:5])}{more}; {_SAVED_TOGETHER}")
    if foreign := foreign_weights(source, report["unexpected_keys"]):
        kind = model_class.__name__
        raise ImportRefused(
            f"{CONFIG} names code, and {kind} of transformers lacks {', '.join(foreign[:5])}; {BY_ONNX}"
        )
    return model.eval().requires_grad_(False)


def _unused(model: Any, name: str) -> bool:
    """Return whether a weight is of a bare model's pooler, whose output is not read."""
    return model is model.base_model and name.startswith("pooler.")
