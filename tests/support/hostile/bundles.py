"""Bundles that never finish loading, take any amount of memory, or change while they are served.

Each is a copy of a bundled classifier, spoilt and with checksums that are right.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from models.store import BUNDLED

__all__ = ["HOSTILE_BUNDLES", "make_bundle"]

_SOURCE = BUNDLED / "intents" / "2"
_GRAPH = "classify.onnx"

Spoil = Callable[[Path], object]


def make_bundle(directory: Path, spoil: Spoil, version: int = 1) -> Path:
    """Make a spoilt bundle and rename it into a model directory, as one publishes a version; return its directory."""
    draft = shutil.copytree(_SOURCE, directory / "intents" / f"draft-{version}")
    content = json.loads((draft / "manifest.json").read_text(encoding="utf-8"))
    (draft / content["graphs"]["classify"].pop("devices")["cuda"]).unlink()
    del content["files"]["classify.cuda.onnx"]
    (draft / "manifest.json").unlink()
    spoil(draft)
    for file in content["files"]:
        if (draft / file).is_file():
            content["files"][file] = hashlib.sha256((draft / file).read_bytes()).hexdigest()
    if not os.path.lexists(draft / "manifest.json"):
        manifest = json.dumps({**content, "version": version})
        (draft / "manifest.json").write_text(manifest, encoding="utf-8")
    return draft.rename(draft.with_name(str(version)))


def _replaced_by_fifo(name: str) -> Spoil:
    def spoil(bundle: Path) -> None:
        (bundle / name).unlink(missing_ok=True)
        os.mkfifo(bundle / name)

    return spoil


def _replaced_by_link(name: str, target: str) -> Spoil:
    def spoil(bundle: Path) -> None:
        (bundle / name).unlink(missing_ok=True)
        (bundle / name).symlink_to(target)

    return spoil


def _before_the_graph(nodes: Sequence[NodeProto], constants: Sequence[TensorProto]) -> Spoil:
    """Compute `zero` by some nodes first, and add it to the tokens."""

    def spoil(bundle: Path) -> None:
        model = onnx.load(str(bundle / _GRAPH), load_external_data=False)
        tokens = model.graph.input[0].name
        for node in model.graph.node:
            for index, name in enumerate(node.input):
                if name == tokens:
                    node.input[index] = "spoilt"
        added = [*nodes, helper.make_node("Add", [tokens, "zero"], ["spoilt"])]
        for node in reversed(added):
            model.graph.node.insert(0, node)
        model.graph.initializer.extend(constants)
        onnx.save(model, str(bundle / _GRAPH))

    return spoil


def _integer(name: str, value: Any) -> TensorProto:
    return numpy_helper.from_array(np.array(value, np.int64), name)


def _endless_loop() -> Spoil:
    def value(name: str, kind: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, [])

    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Add", ["sum", "one"], ["more"])],
        "body",
        [value("step", TensorProto.INT64), value("go", TensorProto.BOOL), value("sum", TensorProto.INT64)],
        [value("goes", TensorProto.BOOL), value("more", TensorProto.INT64)],
    )
    nodes = [
        helper.make_node("Loop", ["many", "true", "one"], ["total"], body=body),
        helper.make_node("Sub", ["total", "total"], ["zero"]),
    ]
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    return _before_the_graph(nodes, [_integer("many", 2**62), _integer("one", 1), true])


def _large_constant(gigabytes: int) -> Spoil:
    one = helper.make_tensor("value", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=one),
        helper.make_node("ReduceSum", ["ones"], ["total"], keepdims=0),
        helper.make_node("Sub", ["total", "total"], ["zero"]),
    ]
    return _before_the_graph(nodes, [_integer("shape", [gigabytes << 27])])


def _expanding_normalizer(bundle: Path) -> None:
    path = bundle / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    expand = {"type": "Replace", "pattern": {"Regex": "a"}, "content": "a" * 100}
    content["normalizer"] = {"type": "Sequence", "normalizers": [expand] * 4}
    path.write_text(json.dumps(content), encoding="utf-8")


def _deep_manifest(bundle: Path) -> None:
    (bundle / "manifest.json").write_text("[" * 1_000_000, encoding="ascii")


def _large(name: str, size: int) -> Spoil:
    def spoil(bundle: Path) -> None:
        with (bundle / name).open("ab") as file:
            file.truncate(size)

    return spoil


HOSTILE_BUNDLES: dict[str, tuple[Spoil, str]] = {
    "a FIFO as manifest": (_replaced_by_fifo("manifest.json"), "it is a FIFO, not a file"),
    "a FIFO as tokenizer": (_replaced_by_fifo("tokenizer.json"), "it is a FIFO, not a file"),
    "an endless manifest": (_replaced_by_link("manifest.json", "/dev/zero"), "it is a device, not a file"),
    "endless weights": (_replaced_by_link("weights.bin", "/dev/zero"), "it is a device, not a file"),
    "weights of another place": (_replaced_by_link("weights.bin", "nothing"), "weights.bin is missing"),
    "a manifest of 1,000,000 lists": (_deep_manifest, "is not readable JSON"),
    "a manifest of 1 GB": (_large("manifest.json", 1 << 30), "the limit is"),
    "a tokenizer of 300 MB": (_large("tokenizer.json", 300_000_000), "the limit is"),
    "a graph that loops": (_endless_loop(), "it did not load within"),
    "a graph with a constant of 3 GB": (_large_constant(3), "memory"),
    "a tokenizer that expands texts": (_expanding_normalizer, "memory"),
}
"""How each is spoilt, and a part of the problem that the service must name."""
