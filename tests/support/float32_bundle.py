"""Write float32 bundles of translation models, to be compared with int8 ones."""

import json
import shutil
from pathlib import Path

from models.bundle.manifest import MANIFEST
from models.reading import load_manifest, sha256_of
from training.bundling.onnx import save_graphs, to_onnx
from training.networks.translation_model import TranslationModel
from training.tasks.translation.graphs import translation_graphs

__all__ = ["export_float32"]


def export_float32(model: TranslationModel, bundle: Path, target: Path) -> Path:
    """Write a float32 bundle of a model to `target`, with the tokenizer and the manifest of the model's bundle."""
    graphs = translation_graphs(model)
    target.mkdir(parents=True)
    files = save_graphs({name: to_onnx(graph) for name, graph in graphs.items()}, target)
    content = load_manifest(bundle).model_dump(mode="json")
    shutil.copy(bundle / content["config"]["tokenizer"], target)
    files.append(content["config"]["tokenizer"])
    for name, graph in graphs.items():
        content["graphs"][name] = {**graph.contract.model_dump(mode="json"), "onnx": f"{name}.onnx"}
    content |= {"quantization": None, "files": {file: sha256_of(target / file) for file in files}}
    (target / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return target
