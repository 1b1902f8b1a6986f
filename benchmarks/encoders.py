"""Import embeddings and rerankers of true size with random weights, and compare them with sentence-transformers.

    pip install "softserve[import]" sentence-transformers
    python -m benchmarks.encoders --only all-MiniLM-L6

Tokenizers are small ones; the table of words has the true size. Differences are those of vectors of length 1, and of
the numbers of rerankers, over 64 texts of 1 to 200 words, alone and in one mixed batch. Times are those of 64 texts of
58 words on all cores, medians of 5 interleaved runs, each side with batches of its own choice.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.timing import medians_of
from models.store import load_bundle
from models.tasks.text_regression import Regressor
from tests.support.random_classifiers import make_classifier
from tests.support.random_encoders import make_sentence_transformer
from training.bundling.bundle import BundleSettings
from training.importing.importer import ImportOptions, chosen_importer, write_imported
from training.importing.samples import BUILT_IN, Samples, read_samples
from training.importing.source import open_source

__all__ = ["MODELS", "measure", "mixed_texts"]

_RUNS = 5
_TEXTS, _WORDS = 64, 58
_MINI = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512}
_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}


@dataclass(frozen=True, slots=True)
class Model:
    """An architecture, the fields of its published configuration, and the modules after it."""

    architecture: str
    config: Mapping[str, Any]
    modules: Mapping[str, Any] = field(default_factory=dict)


MODELS: Mapping[str, Model] = {
    "all-MiniLM-L6": Model("BertModel", {**_MINI, "num_hidden_layers": 6, "vocab_size": 30522}),
    "bge-small": Model(
        "BertModel", {**_MINI, "num_hidden_layers": 12, "vocab_size": 30522}, {"pooling": {"pooling_mode": "cls"}}
    ),
    "multilingual-e5-small": Model("BertModel", {**_MINI, "num_hidden_layers": 12, "vocab_size": 250037}),
    "all-mpnet-base": Model("MPNetModel", {**_BASE, "vocab_size": 30527, "max_position_embeddings": 514}),
    "gte-modernbert-base": Model(
        "ModernBertModel",
        {"hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12, "intermediate_size": 1152}
        | {
            "vocab_size": 50368,
            "max_position_embeddings": 8192,
            "global_attn_every_n_layers": 3,
            "local_attention": 128,
        },
        {"pooling": {"pooling_mode": "cls"}},
    ),
    "ms-marco-MiniLM-L6": Model(
        "BertForSequenceClassification", {**_MINI, "num_hidden_layers": 6, "vocab_size": 30522}
    ),
    "bge-reranker-base": Model(
        "XLMRobertaForSequenceClassification",
        {**_BASE, "vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    ),
}
"""Models by name."""


def main(only: str | None = None, int8: bool = False, directory: Path | None = None, texts: Path | None = None) -> None:
    """Print a row for each model.

    Args:
        only: Name of one model.
        int8: Quantize, and print what that costs.
        directory: A directory with a model's own weights instead.
        texts: A file with a text a line, for such a model: texts to compare, and to set the ranges of int8 with.
    """
    columns = ["model", "parameters", "largest difference", "bundle (MB)", "bundle (ms)", "sentence-transformers (ms)"]
    columns += ["ratio", *(["int8: correlation, largest difference"] if int8 else [])]
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")
    samples = read_samples(texts)
    if directory is not None:
        print(measure(directory, samples, int8=int8))
        return
    for name in MODELS if only is None else [only]:
        with tempfile.TemporaryDirectory() as temporary:
            print(measure(_made(Path(temporary) / name, MODELS[name]), samples, int8=int8), flush=True)


def _made(path: Path, model: Model) -> Path:
    if model.architecture.endswith("ForSequenceClassification"):
        return make_classifier(path, model.architecture, labels=1, deviation=0.04, **model.config)
    settings = {"max_seq_length": 512, "do_lower_case": False}
    modules = {"settings": settings, "deviation": 0.04, **model.modules}
    return make_sentence_transformer(path, model.architecture, **modules, **model.config)


def measure(directory: Path, samples: Samples, *, int8: bool) -> str:
    """Import, compare and time the model of a directory, and return its row of the table."""
    with tempfile.TemporaryDirectory() as temporary:
        source = open_source(str(directory))
        importer = chosen_importer(source)(source, ImportOptions(samples=samples))
        name = source.default_name()
        bundle = BundleSettings(
            name=name, version=1, description=name, licence="none", quantization="int8" if int8 else "none"
        )
        imported = write_imported(importer, bundle, Path(temporary))
        del importer
        size = sum(file.stat().st_size for file in imported.path.iterdir()) / 1e6
        ours = load_bundle(imported.path)
        ranks = isinstance(ours, Regressor)
        parameters, theirs = _reranker(directory) if ranks else _embedder(directory)
        run: Callable[[list[str]], Any] = (
            (lambda texts: np.array([each.score for each in ours.rerank(texts[0], texts, truncate=True)]))
            if ranks
            else (lambda texts: ours.embed(texts, truncate=True))
        )
        texts = mixed_texts(samples)
        expected = theirs(texts)
        one = [run([texts[0], each])[1:] if ranks else run([each]) for each in texts]
        difference = max(float(np.abs(found - expected).max()) for found in (run(texts), np.concatenate(one)))
        same = [" ".join(each) for each in np.random.default_rng(1).choice(["the", "and", "a", "on"], (_TEXTS, _WORDS))]
        seconds = medians_of({"ours": lambda: run(same), "theirs": lambda: theirs(same)}, _RUNS)
    cost = "" if imported.cost is None else f" {imported.cost.value:.4f}, {imported.cost.difference:.3f} |"
    mine, other = 1000 * seconds["ours"], 1000 * seconds["theirs"]
    cells = [directory.name, f"{parameters / 1e6:.0f} M", f"{difference:.1e}", f"{size:.0f}"]
    cells += [f"{mine:.0f}", f"{other:.0f}", f"{other / mine:.2f}"]
    return f"| {' | '.join(cells)} |{cost}"


def mixed_texts(samples: Samples, count: int = _TEXTS, most: int = 200) -> list[str]:
    """Return texts of the samples, or where these are the built-in ones texts of 1 to `most` of their words."""
    if samples.name:
        return list(samples.texts[:: max(1, len(samples.texts) // count)])
    words = " ".join(BUILT_IN).split()
    sizes = np.random.default_rng(0).integers(1, most, count)
    return [" ".join(words[place : place + size]) for place, size in enumerate(sizes.tolist())]


def _embedder(path: Path) -> tuple[int, Callable[[list[str]], Any]]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(path), device="cpu")
    return _parameters(model), lambda texts: model.encode(texts, show_progress_bar=False)


def _reranker(path: Path) -> tuple[int, Callable[[list[str]], Any]]:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(path), device="cpu")
    return _parameters(model), lambda texts: model.predict(
        [(texts[0], text) for text in texts], show_progress_bar=False
    )


def _parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    tyro.cli(main)
