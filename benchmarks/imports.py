"""Import text classifiers of true size with random weights, and compare them with transformers.

    pip install "softserve[import]"
    python -m benchmarks.imports --only bert-base

Tokenizers are small ones; the table of words has the true size. Latency is that of a batch of 8 texts of 128 tokens
on all cores, in the bundle's graph and in transformers with its default attention: medians of 10 interleaved runs.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from benchmarks.timing import medians_of
from models.store import load_bundle
from tests.support.random_classifiers import make_classifier
from training.bundling.bundle import BundleSettings, WrittenBundle
from training.importing.importer import Agreement, ImportOptions, chosen_importer, need, write_imported
from training.importing.source import open_source

__all__ = ["MODELS", "measure"]

_RUNS = 10
_BATCH, _LENGTH = 8, 128

_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}


@dataclass(frozen=True, slots=True)
class Model:
    """An architecture and the fields of its published configuration."""

    architecture: str
    config: Mapping[str, Any]


MODELS: Mapping[str, Model] = {
    "bert-base": Model("BertForSequenceClassification", {**_BASE, "vocab_size": 30522, "max_position_embeddings": 512}),
    "roberta-base": Model(
        "RobertaForSequenceClassification",
        {**_BASE, "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    ),
    "distilbert-base": Model(
        "DistilBertForSequenceClassification",
        {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "hidden_dim": 3072}
        | {"vocab_size": 30522, "max_position_embeddings": 512},
    ),
    "electra-small": Model(
        "ElectraForSequenceClassification",
        {"hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 1024}
        | {"embedding_size": 128, "vocab_size": 30522, "max_position_embeddings": 512},
    ),
    "electra-base": Model(
        "ElectraForSequenceClassification",
        {**_BASE, "embedding_size": 768, "vocab_size": 30522, "max_position_embeddings": 512},
    ),
    "deberta-v3-base": Model(
        "DebertaV2ForSequenceClassification",
        {**_BASE, "vocab_size": 128100, "max_position_embeddings": 512, "position_buckets": 256}
        | {"pooler_hidden_size": 768, "max_relative_positions": -1, "layer_norm_eps": 1e-7},
    ),
}
"""Models by name."""


def main(only: str | None = None, int8: bool = False, deviation: float = 0.04) -> None:
    """Print a row for each model.

    Args:
        only: Name of one model.
        int8: Quantize, and print the agreement with float32.
        deviation: Standard deviation of the random weights.
    """
    columns = ["model", "parameters", "largest difference", "import (s)", "bundle (MB)", "bundle (ms)"]
    columns += ["transformers (ms)", *(["same best class, largest difference in int8"] if int8 else [])]
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")
    for name in MODELS if only is None else [only]:
        print(measure(name, int8=int8, deviation=deviation), flush=True)


def measure(name: str, *, int8: bool, deviation: float) -> str:
    """Make, import and time one model, and return its row of the table."""
    model = MODELS[name]
    with tempfile.TemporaryDirectory() as temporary:
        where = Path(temporary)
        make_classifier(where / name, model.architecture, deviation=deviation, **model.config)
        start = time.perf_counter()
        source = open_source(str(where / name))
        importer = chosen_importer(source)(source, ImportOptions())
        settings = BundleSettings(
            name=name, version=1, description=name, licence="none", quantization="int8" if int8 else "none"
        )
        imported = write_imported(importer, settings, where / "out")
        seconds = time.perf_counter() - start
        del importer
        size = sum(file.stat().st_size for file in imported.path.iterdir()) / 1e6
        parameters, theirs = _transformers(model.architecture, where / name)
        seconds_of = medians_of({"ours": _bundle_run(imported.path), "theirs": theirs}, _RUNS)
    agreement = "" if imported.cost is None else _agreement(imported)
    return (
        f"| {name} | {parameters / 1e6:.0f} M | {imported.difference:.1e} | {seconds:.0f} | {size:.0f} | "
        f"{1000 * seconds_of['ours']:.0f} | {1000 * seconds_of['theirs']:.0f} |{agreement}"
    )


def _agreement(imported: WrittenBundle[Agreement]) -> str:
    assert imported.cost is not None
    return f" {imported.cost.value:.3f}, {imported.cost.difference:.3f} |"


def _bundle_run(path: Path) -> Callable[[], object]:
    backend = load_bundle(path).backend
    tokens = np.random.default_rng(0).integers(100, 250, (_BATCH, _LENGTH))
    inputs = {"tokens": tokens, "lengths": np.full(_BATCH, _LENGTH), "k": np.array(1)}
    return lambda: backend.run("classify", inputs, ["classes"])


def _transformers(architecture: str, path: Path) -> tuple[int, Callable[[], object]]:
    """Return the number of parameters, and a run of transformers."""
    model = getattr(need("transformers"), architecture).from_pretrained(path, dtype=torch.float32).eval()
    tokens = torch.randint(100, 250, (_BATCH, _LENGTH), generator=torch.Generator().manual_seed(0))
    run = torch.inference_mode()(lambda: model(input_ids=tokens))
    return sum(parameter.numel() for parameter in model.parameters()), run


if __name__ == "__main__":
    tyro.cli(main)
