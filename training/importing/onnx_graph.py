"""Graphs in the ONNX format that read texts, BERT-like in their inputs, and the nodes put before and after them.

A graph takes `input_ids`, and may take `attention_mask` and `token_type_ids`, all `[B, T]`. It is left as it is: the
mask is made from lengths before it, and nodes after it compute the outputs of a bundle's graph from one of its outputs.

Shapes: `B` texts, `T` tokens.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from models.bundle.manifest import Graph
from models.text.encoding import EncodedText
from training.importing.errors import ImportRefused
from training.importing.source import SourceDirectory

__all__ = [
    "HIDDEN",
    "LOGITS",
    "SEGMENTS",
    "VECTORS",
    "OriginalGraph",
    "gives_one_number",
    "graph_outputs",
    "read_graph",
    "scores_output",
    "wrapped",
]

LOGITS, SEGMENTS = "logits", "token_type_ids"
"""The output of scores, and the input of the types of tokens, by which a model tells two texts apart."""
VECTORS, HIDDEN = "sentence_embedding", ("last_hidden_state", "token_embeddings")
"""The output of vectors of texts, and those of hidden states."""
_IDS, _MASK = "input_ids", "attention_mask"
_OLDEST_OPSET = 13
_PREFIX = "original/"
"""Before all names of the given graph, so that none is that of another node."""
_INTEGERS = {TensorProto.INT64: np.int64, TensorProto.INT32: np.int32}
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


class OriginalGraph:
    """The given graph, checked; runs one text at a time."""

    def __init__(self, model: onnx.ModelProto, output: str, axes: Sequence[str], noun: str, hint: str = "") -> None:
        """`axes` are those of the output, `noun` names its content.

        Raises `ImportRefused` for other inputs, and with `hint` for another type or shape of the output.
        """
        self.model, self.output = model, output
        weights = {tensor.name for tensor in model.graph.initializer}
        self.inputs = {each.name: each.type.tensor_type for each in model.graph.input if each.name not in weights}
        self._check_inputs()
        kind = graph_outputs(model)[output]
        if kind.elem_type not in _FLOATS or len(kind.shape.dim) != len(axes):
            raise ImportRefused(
                f"output {output} must be {noun}, [{', '.join(axes)}]{hint or '; export it so, in float32'}"
            )
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's exceptions share no public base
            raise ImportRefused(f"onnxruntime does not load the graph: {error}; export it again in float32") from error

    def _check_inputs(self) -> None:
        if _IDS not in self.inputs or not set(self.inputs) <= {_IDS, _MASK, SEGMENTS}:
            raise ImportRefused(
                f"the graph has the inputs {', '.join(self.inputs)}; needed is {_IDS}, and {_MASK} and {SEGMENTS} are "
                "possible: name them so in the export (input_names of torch.onnx.export)"
            )
        for name, kind in self.inputs.items():
            if kind.elem_type not in _INTEGERS or len(kind.shape.dim) != 2:
                raise ImportRefused(f"input {name} must be a matrix of int64 or int32, [texts, tokens]; export it so")
            if any(dim.HasField("dim_value") for dim in kind.shape.dim):
                raise ImportRefused(
                    f"input {name} has a fixed size; export it with variable numbers of texts and "
                    "tokens (dynamic_axes of torch.onnx.export)"
                )

    @property
    def line(self) -> str:
        """A line of the model card."""
        inputs = ", ".join(f"`{name}`" for name in self.inputs)
        return f"an ONNX graph with the inputs {inputs}, unchanged"

    def run(self, text: EncodedText) -> NDArray[np.float32]:
        """Return the output for a text, or a pair, without the axis of texts; raises `ImportRefused` where it fails."""
        tokens = text.tokens
        segments = np.arange(len(tokens))[None] >= text.second
        values = {_IDS: np.array([tokens]), _MASK: np.ones((1, len(tokens))), SEGMENTS: segments}
        feed = {name: values[name].astype(_INTEGERS[kind.elem_type]) for name, kind in self.inputs.items()}
        try:
            found: list[NDArray[Any]] = self._session.run([self.output], feed)
        except Exception as error:  # onnxruntime's exceptions share no public base
            raise ImportRefused(
                f"the graph fails on a text of {len(tokens)} tokens, the largest being {max(tokens)}; is this too long "
                f"(--max-tokens), or is the tokenizer another model's? {error}"
            ) from error
        values_of_text: NDArray[np.float32] = found[0][0].astype(np.float32)
        return values_of_text


def graph_outputs(model: onnx.ModelProto) -> Mapping[str, onnx.TypeProto.Tensor]:
    """Return type and shape of each output, by name."""
    return {each.name: each.type.tensor_type for each in model.graph.output}


def scores_output(model: onnx.ModelProto) -> str:
    """Return the name of the output of scores: `logits`, or the only one; raises `ImportRefused` for several others."""
    names = list(graph_outputs(model))
    if LOGITS not in names and len(names) != 1:
        known = ", ".join((LOGITS, VECTORS, *HIDDEN))
        raise ImportRefused(
            f"the graph has the outputs {', '.join(names)}, none of them one of {known}; rename one in the export "
            "(output_names of torch.onnx.export)"
        )
    return LOGITS if LOGITS in names else names[0]


def gives_one_number(source: SourceDirectory) -> bool:
    """Return whether the scores of a graph are one number for each text; raises `ImportRefused`.

    A graph that does not state how many scores it gives is run on one text.
    """
    model = read_graph(source, weights=False)
    output = scores_output(model)
    axes = graph_outputs(model)[output].shape.dim
    if len(axes) != 2:
        return len(axes) == 1
    if axes[1].HasField("dim_value"):
        return bool(axes[1].dim_value == 1)
    original = OriginalGraph(read_graph(source), output, ("texts", "classes"), "a matrix of scores")
    return len(original.run(EncodedText((0, 0, 0), 3))) == 1


def read_graph(source: SourceDirectory, *, weights: bool = True) -> onnx.ModelProto:
    """Return the model of an ONNX file, with `weights` that lie in other files in memory; raises `ImportRefused`."""
    name = source.onnx
    assert name is not None
    directory = posixpath.dirname(name)
    try:
        model = onnx.load(source.file(name), load_external_data=False)
        if not model.graph.output:
            raise ImportRefused(f"{name} is not an ONNX file: it has no outputs; export it again")
        if not weights:
            return model
        for file in sorted(_external_files(model)):
            source.file(posixpath.join(directory, file))
        onnx.load_external_data_for_model(model, str(source.path / directory))
        onnx.checker.check_model(model)
    except ImportRefused:
        raise
    except Exception as error:  # protobuf, onnx and the operating system raise exceptions of their own
        raise ImportRefused(
            f"{name} is not an ONNX file: {error}; export it again, with its data next to it"
        ) from error
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
    """Return the graph with the inputs and outputs of a contract; nodes `after` it make the outputs.

    These nodes may take `output`, that of the given graph in float32, `inside` `[B, T]`, true for the tokens of a text,
    and the constants `zero`, `one`, `first_axis` `[0]`, `second_axis` `[1]` and `third_axis` `[2]`.
    """
    model = onnx.compose.add_prefix(original.model, _PREFIX)
    graph = model.graph
    segments = any(each.name == "second" for each in contract.inputs)
    nodes = [
        *_nodes_before(original, segments),
        *graph.node,
        helper.make_node("Cast", [_PREFIX + original.output], ["output"], to=TensorProto.FLOAT),
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


_CONSTANTS: Mapping[str, int | list[int]] = {
    "zero": 0,
    "one": 1,
    "first_axis": [0],
    "second_axis": [1],
    "third_axis": [2],
}


def _nodes_before(original: OriginalGraph, segments: bool) -> list[onnx.NodeProto]:
    """Return nodes that make the inputs of the graph from tokens `[B, T]`, lengths `[B]`, and with `segments` the
    places of second texts `[B]`.
    """
    nodes = [
        helper.make_node("Shape", ["tokens"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["steps"]),
        helper.make_node("Range", ["zero", "steps", "one"], ["places"]),
        helper.make_node("Unsqueeze", ["lengths", "second_axis"], ["ends"]),
        helper.make_node("Less", ["places", "ends"], ["inside"]),
    ]
    if segments:
        nodes += [
            helper.make_node("Unsqueeze", ["second", "second_axis"], ["begins"]),
            helper.make_node("GreaterOrEqual", ["places", "begins"], ["segments"]),
        ]
    elif SEGMENTS in original.inputs:
        nodes.append(helper.make_node("Sub", ["tokens", "tokens"], ["segments"]))
    values = {_IDS: "tokens", _MASK: "inside", SEGMENTS: "segments"}
    return nodes + [
        helper.make_node("Cast", [values[name]], [_PREFIX + name], to=kind.elem_type)
        for name, kind in original.inputs.items()
    ]
