"""Import of any text classifier in the ONNX format, BERT-like in its inputs, with a `tokenizer.json` in its directory.

The graph takes `input_ids`, and may take `attention_mask` and `token_type_ids`, all `[B, T]`, and gives `logits`
`[B, C]`. It is left as it is: the mask is made from lengths before it, and the best classes are chosen after it.

Shapes: `B` texts, `T` tokens, `C` classes, `k` classes asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from models.bundle.manifest import Graph
from models.tasks.text_classification import NORMALIZERS
from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.importing.classifier import ClassifierImporter, checked_labels
from training.importing.encoder import pairs_of
from training.importing.errors import ImportRefused
from training.importing.importer import ONNX, ImportOptions, register
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tokenizers import encoder_tokenizer, read_tokenizer

__all__ = ["OnnxClassifierImporter", "OriginalGraph", "network_sizes", "read_graph", "stated_tokens", "wrapped"]

_IDS, _MASK, _SEGMENTS, _LOGITS = "input_ids", "attention_mask", "token_type_ids", "logits"
_MAX_TOKENS = 512
"""Longest text where nothing says how long texts may be; the comparison has one of this length."""
_OLDEST_OPSET = 13
_PREFIX = "original/"
"""Before all names of the given graph, so that none is that of another node."""
_INTEGERS = {TensorProto.INT64: np.int64, TensorProto.INT32: np.int32}
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_OF_TOKENS = f"; of a model that labels tokens, architectures in {CONFIG} must name a class ...ForTokenClassification"
_SIZES = {
    "hidden_size": ("hidden_size", "dim"),
    "inner_size": ("intermediate_size", "hidden_dim"),
    "layers": ("num_hidden_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_heads"),
}
"""Fields of `config.json` for each size of the manifest."""


@register(ONNX)
class OnnxClassifierImporter(ClassifierImporter):
    """The import of an ONNX file."""

    reference = ("onnxruntime",)
    compares_tokens = False

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self.tokenizer, self.special = encoder_tokenizer(read_tokenizer(source))
        self._config = source.json(CONFIG, optional=True)
        self._original = OriginalGraph(read_graph(source))
        self.max_tokens = options.max_tokens or stated_tokens(source)
        if self.max_tokens < 3:
            raise ImportRefused(f"--max-tokens must be at least 3, not {self.max_tokens}")
        self.pairs = pairs_of(read_tokenizer(source), self.special, segments=_SEGMENTS in self._original.inputs)
        sample = (self.special.start or 0, self.tokenizer.vocab_size - 1, self.special.end)
        count = len(self._original.logits(EncodedText(sample, len(sample))))
        self.independent = self._is_multi_label(count)
        found = self._config.get("id2label") or {str(number): str(number) for number in range(count)}
        self.labels = checked_labels(found, CONFIG)
        if len(self.labels) != count:
            raise ImportRefused(f"the graph has {count} classes, id2label in {CONFIG} has {len(self.labels)}")

    def _is_multi_label(self, count: int) -> bool:
        kind = self._config.get("problem_type")
        if count < 2 or kind == "regression":
            raise ImportRefused(
                "the graph gives one number: of ONNX files, classifiers with two classes or more can be imported; of a "
                "reranker, import the directory with its weights in safetensors instead"
            )
        return kind == "multi_label_classification"

    def network(self) -> Mapping[str, object]:
        return {"architecture": ONNX, **network_sizes(self._config), "positions": self.max_tokens}

    def network_line(self) -> str:
        return self._original.line

    def graphs(self) -> Mapping[str, BundleGraph]:
        nodes = _nodes_after(independent=self.independent, normalizers=self.zero_shot)
        return {"classify": BundleGraph(self.contract, wrapped(self._original, self.contract, nodes))}

    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        scores = self.reference_scores(text)
        normalizer = np.logaddexp(0, scores) if self.independent else np.logaddexp.reduce(scores)
        found: NDArray[np.float32] = scores - normalizer
        return found

    def reference_scores(self, text: EncodedText) -> NDArray[np.float32]:
        return self._original.logits(text)


def stated_tokens(source: SourceDirectory) -> int:
    """Return the longest text that configuration or tokenizer state."""
    config = source.json(CONFIG, optional=True)
    positions, padding = config.get("max_position_embeddings"), config.get("pad_token_id")
    if isinstance(positions, int) and "roberta" in str(config.get("model_type")) and isinstance(padding, int):
        positions -= padding + 1
    length = source.json("tokenizer_config.json", optional=True).get("model_max_length")
    stated = [each for each in (positions, length) if isinstance(each, int) and 3 <= each <= 1 << 17]
    return min(stated, default=_MAX_TOKENS)


def network_sizes(config: Mapping[str, Any]) -> Mapping[str, int | None]:
    """Return the sizes of the encoder that a configuration states."""
    sizes = {}
    for size, names in _SIZES.items():
        value = next((config[name] for name in names if name in config), None)
        sizes[size] = value if isinstance(value, int) and value > 0 else None
    return sizes


class OriginalGraph:
    """The given graph, checked; runs one text at a time."""

    def __init__(self, model: onnx.ModelProto, scores: Sequence[str] = ("texts", "classes")) -> None:
        """`scores` are the dimensions of the scores that the graph gives. Raises `ImportRefused`."""
        self.model, self._scores = model, scores
        weights = {tensor.name for tensor in model.graph.initializer}
        self.inputs = {each.name: each.type.tensor_type for each in model.graph.input if each.name not in weights}
        self._check_inputs()
        self.output = self._logits_output()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's exceptions share no public base
            raise ImportRefused(f"onnxruntime does not load the graph: {error}") from error

    def _check_inputs(self) -> None:
        if _IDS not in self.inputs or not set(self.inputs) <= {_IDS, _MASK, _SEGMENTS}:
            raise ImportRefused(
                f"the graph has the inputs {', '.join(self.inputs)}; needed is {_IDS}, and {_MASK} and {_SEGMENTS} are "
                "possible"
            )
        for name, kind in self.inputs.items():
            if kind.elem_type not in _INTEGERS or len(kind.shape.dim) != 2:
                raise ImportRefused(f"input {name} must be a matrix of int64 or int32, [texts, tokens]")
            if any(dim.HasField("dim_value") for dim in kind.shape.dim):
                raise ImportRefused(f"input {name} has a fixed size; numbers of texts and of tokens must vary")

    def _logits_output(self) -> str:
        outputs = {each.name: each.type.tensor_type for each in self.model.graph.output}
        name = _LOGITS if _LOGITS in outputs else next(iter(outputs), "")
        if name != _LOGITS and len(outputs) != 1:
            raise ImportRefused(f"the graph has the outputs {', '.join(outputs)}, none of them {_LOGITS}")
        if outputs[name].elem_type not in _FLOATS or len(outputs[name].shape.dim) != len(self._scores):
            form = "a matrix of scores" if len(self._scores) == 2 else "scores"
            hint = "" if len(outputs[name].shape.dim) != 3 else _OF_TOKENS
            raise ImportRefused(f"output {name} must be {form}, [{', '.join(self._scores)}]{hint}")
        return name

    @property
    def line(self) -> str:
        """A line of the model card."""
        inputs = ", ".join(f"`{name}`" for name in self.inputs)
        return f"an ONNX graph with the inputs {inputs}, unchanged"

    def logits(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the scores of a text, `[C]` or `[T, C]`, or of a pair; raises `ImportRefused` where it fails."""
        tokens = text.tokens
        segments = np.arange(len(tokens))[None] >= text.second
        values = {_IDS: np.array([tokens]), _MASK: np.ones((1, len(tokens))), _SEGMENTS: segments}
        feed = {name: values[name].astype(_INTEGERS[kind.elem_type]) for name, kind in self.inputs.items()}
        try:
            found: list[NDArray[Any]] = self._session.run([self.output], feed)
        except Exception as error:  # onnxruntime's exceptions share no public base
            raise ImportRefused(
                f"the graph fails on a text of {len(tokens)} tokens, the largest being {max(tokens)}; is this too long "
                f"(--max-tokens), or is the tokenizer another model's? {error}"
            ) from error
        scores: NDArray[np.float32] = found[0][0].astype(np.float32)
        return scores


def read_graph(source: SourceDirectory) -> onnx.ModelProto:
    """Return the model of an ONNX file with all its weights in memory; raises `ImportRefused`."""
    name = source.onnx
    assert name is not None
    try:
        model = onnx.load(source.file(name), load_external_data=False)
        for file in sorted(_external_files(model)):
            source.file(file)
        onnx.load_external_data_for_model(model, str(source.path))
        onnx.checker.check_model(model)
    except ImportRefused:
        raise
    except Exception as error:  # protobuf, onnx and the operating system raise exceptions of their own
        raise ImportRefused(f"{name} is not an ONNX file: {error}") from error
    version = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=0)
    if version < _OLDEST_OPSET:
        raise ImportRefused(
            f"{name} has operators of version {version}; export it with version {_OLDEST_OPSET} or newer"
        )
    return model


def _external_files(model: onnx.ModelProto) -> Iterator[str]:
    for tensor in model.graph.initializer:
        if uses_external_data(tensor):
            yield ExternalDataInfo(tensor).location


def wrapped(original: OriginalGraph, contract: Graph, after: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """Return the graph with the inputs and outputs of a contract; nodes `after` it make the outputs of `scores`."""
    model = onnx.compose.add_prefix(original.model, _PREFIX)
    graph = model.graph
    segments = any(each.name == "second" for each in contract.inputs)
    nodes = [
        *_nodes_before(original, segments),
        *graph.node,
        helper.make_node("Cast", [_PREFIX + original.output], ["scores"], to=TensorProto.FLOAT),
        *after,
    ]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    for tensors, values in ((contract.inputs, graph.input), (contract.outputs, graph.output)):
        kinds = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT}
        values.extend(helper.make_tensor_value_info(each.name, kinds[each.dtype], each.shape) for each in tensors)
    used = {name for node in nodes for name in node.input}
    for name, value in ((name, _CONSTANTS[name]) for name in _CONSTANTS if name in used):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    return model


_CONSTANTS: Mapping[str, int | list[int]] = {"zero": 0, "one": 1, "last_axis": [1], "first_axis": [0]}


def _nodes_before(original: OriginalGraph, segments: bool) -> list[onnx.NodeProto]:
    """Return nodes that make the inputs of the graph from tokens `[B, T]`, lengths `[B]`, and with `segments` the
    places of second texts `[B]`.
    """
    nodes = [
        helper.make_node("Shape", ["tokens"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["steps"]),
        helper.make_node("Range", ["zero", "steps", "one"], ["places"]),
        helper.make_node("Unsqueeze", ["lengths", "last_axis"], ["ends"]),
        helper.make_node("Less", ["places", "ends"], ["inside"]),
    ]
    if segments:
        nodes += [
            helper.make_node("Unsqueeze", ["second", "last_axis"], ["begins"]),
            helper.make_node("GreaterOrEqual", ["places", "begins"], ["segments"]),
        ]
    elif _SEGMENTS in original.inputs:
        nodes.append(helper.make_node("Sub", ["tokens", "tokens"], ["segments"]))
    values = {_IDS: "tokens", _MASK: "inside", _SEGMENTS: "segments"}
    return nodes + [
        helper.make_node("Cast", [values[name]], [_PREFIX + name], to=kind.elem_type)
        for name, kind in original.inputs.items()
    ]


def _nodes_after(*, independent: bool, normalizers: bool) -> list[onnx.NodeProto]:
    """Return nodes that choose the k best of scores `[B, C]`, and with `normalizers` those that make them."""
    if independent:  # log sigmoid(x) = -log(1 + exp(-x))
        normalized = [
            helper.make_node("Neg", ["scores"], ["negative"]),
            helper.make_node("Softplus", ["negative"], ["losses"]),
            helper.make_node("Neg", ["losses"], ["normalized"]),
        ]
    else:
        normalized = [helper.make_node("LogSoftmax", ["scores"], ["normalized"], axis=-1)]
    return [
        *normalized,
        helper.make_node("Unsqueeze", ["k", "first_axis"], ["count"]),
        helper.make_node("TopK", ["normalized", "count"], ["log_probabilities", "classes"], axis=-1),
        *(_NORMALIZERS if normalizers else ()),
    ]


_NORMALIZERS = (
    helper.make_node("Sub", ["scores", "normalized"], ["differences"]),
    helper.make_node("Gather", ["differences", "zero"], [NORMALIZERS], axis=1),
)
"""The logarithm of the softmax's denominator is the score of any class less its log-probability."""
