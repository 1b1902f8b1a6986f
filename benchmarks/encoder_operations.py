"""Compare every operation of imported encoders of true size, in float32 and int8, with transformers.

    pip install "softserve[import]" sentence-transformers
    python -m benchmarks.encoder_operations --only ModernBERT-base

Each architecture has the fields of a published configuration, random weights and a small tokenizer; the table of words
has the true size. It is imported with each head that the operations need, with int8 graphs. Texts of 1 to 120 words
are computed alone and in one mixed batch, and compared with transformers, or with sentence-transformers where it has
the operation, which compute each text alone. What int8 costs is measured on half of the texts; the other half sets the
ranges of activations.

Shapes: `N` texts, `C` classes, `T` tokens, `d` dimensions.
"""

import gc
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
import tyro
from numpy.typing import NDArray

from benchmarks.encoders import mixed_texts
from models.tasks.text_classification import Classifier
from models.tasks.token_classification import Tagger
from tests.support.random_classifiers import make_classifier
from tests.support.random_encoders import make_sentence_transformer
from training.bundling.bundle import BundleSettings
from training.importing.importer import Agreement, ImportOptions, chosen_importer, write_imported
from training.importing.samples import BUILT_IN_SAMPLES, Samples
from training.importing.source import open_source

__all__ = ["ARCHITECTURES", "OPERATIONS", "measure"]

_WORDS = 120
_QUERY = "where is my parcel"
_CANDIDATES = ["a parcel", "an invoice", "the weather in the mountains"]
_ENTAILMENT = ["contradiction", "neutral", "entailment"]
_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_DEBERTA = {"position_buckets": 256, "pooler_hidden_size": 768, "max_position_embeddings": 512}

Rows = list[NDArray[np.float64]]
"""The numbers of each text."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The beginning of the class names of an architecture, and the fields of a published configuration."""

    name: str
    config: Mapping[str, Any]
    deviation: float = 0.04
    """Standard deviation of the random weights, which decides how large scores are."""


ARCHITECTURES: Mapping[str, Architecture] = {
    "ModernBERT-base": Architecture(
        "ModernBert",
        {"hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12, "intermediate_size": 1152}
        | {"vocab_size": 50368, "max_position_embeddings": 8192, "global_attn_every_n_layers": 3}
        | {"local_attention": 128, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3},
    ),
    "mpnet-base": Architecture("MPNet", {**_BASE, "vocab_size": 30527, "max_position_embeddings": 514}),
    "albert-base-v2": Architecture(
        "Albert", {**_BASE, "vocab_size": 30000, "embedding_size": 128, "max_position_embeddings": 512}
    ),
    "camembert-base": Architecture(
        "Camembert", {**_BASE, "vocab_size": 32005, "max_position_embeddings": 514, "type_vocab_size": 1}
    ),
    "mdeberta-v3-base": Architecture("DebertaV2", {**_BASE, **_DEBERTA, "vocab_size": 251000}),
    "nomic-embed-text-v1.5": Architecture("NomicBert", {**_BASE, "vocab_size": 30528, "max_position_embeddings": 2048}),
    "gte-multilingual-base": Architecture(
        "Gte", {**_BASE, "vocab_size": 250048, "max_position_embeddings": 8192}, deviation=0.03
    ),
}
"""Architectures by the published model whose configuration they have."""


@dataclass(frozen=True, slots=True)
class Compared:
    """An operation of a head: the numbers of texts by a bundle, and by the reference of a directory."""

    head: str
    run: Callable[[Any, Sequence[str]], Rows]
    reference: Callable[[Path, Sequence[str]], Rows]
    cosines: bool = False
    """Whether int8 is compared by the cosines of all pairs of texts."""
    classes: bool = False
    """Whether the numbers are probabilities, of which the largest is the result."""


@dataclass(slots=True)
class Found:
    """The results of one operation of a bundle."""

    alone: Rows = field(default_factory=list)
    together: Rows = field(default_factory=list)
    float32: Rows = field(default_factory=list)
    """These are results of the texts that int8 is measured on."""
    int8: Rows = field(default_factory=list)


def main(
    only: str | None = None, heads: tuple[str, ...] = ("Model", "number", "classes", "tags"), texts: int = 48
) -> None:
    """Print a row for each architecture and operation.

    Args:
        only: Name of one architecture.
        heads: Heads that are imported: Model (vectors), number, classes, tags.
        texts: Number of texts that are compared.
    """
    columns = ["architecture", "operation", "parameters", "alone", "mixed batch"]
    columns += ["int8: correlation", "largest change", "same first class"]
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")
    for name in ARCHITECTURES if only is None else [only]:
        for head in heads:
            with tempfile.TemporaryDirectory() as temporary:
                for row in measure(name, head, Path(temporary), texts):
                    print(row, flush=True)
            gc.collect()


def measure(name: str, head: str, directory: Path, texts: int) -> Iterator[str]:
    """Import an architecture with a head, and return the rows of its operations on so many texts."""
    samples = Samples(tuple(mixed_texts(BUILT_IN_SAMPLES, texts, _WORDS)), "mixed lengths")
    place = _made(directory / "model", ARCHITECTURES[name], head)
    found = _results(place, samples, directory / "bundle", head)
    parameters = sum(tensor.numel() for tensor in open_source(str(place)).weights().values())
    for operation, results in found.items():
        compared = OPERATIONS[operation]
        expected = compared.reference(place, samples.texts)
        differences = [_largest(each, expected) for each in (results.alone, results.together)]
        cells = [name, operation, f"{parameters / 1e6:.0f} M", *(f"{each:.1e}" for each in differences)]
        yield f"| {' | '.join([*cells, *_cost(compared, results)])} |"


def _made(path: Path, architecture: Architecture, head: str) -> Path:
    if head == "Model":
        settings = {"max_seq_length": 512, "do_lower_case": False}
        kind = f"{architecture.name}Model"
        return make_sentence_transformer(
            path, kind, settings=settings, deviation=architecture.deviation, **architecture.config
        )
    end = "ForTokenClassification" if head == "tags" else "ForSequenceClassification"
    labels = {"number": ["score"], "classes": _ENTAILMENT, "tags": [f"tag {number}" for number in range(9)]}[head]
    config = {**architecture.config, "id2label": dict(enumerate(labels))}
    return make_classifier(
        path, architecture.name + end, labels=len(labels), deviation=architecture.deviation, **config
    )


def _results(place: Path, samples: Samples, output: Path, head: str) -> Mapping[str, Found]:
    """Import a directory, and return the results of its float32 and int8 graphs, which the import has side by side."""
    source = open_source(str(place))
    importer = chosen_importer(source)(source, ImportOptions(samples=samples, max_tokens=512))
    operations = {name: each for name, each in OPERATIONS.items() if each.head == head}
    found = {name: Found() for name in operations}
    agreement = importer.agreement

    def recorded(float32: Any, int8: Any, texts: Sequence[str]) -> Agreement:
        for name, each in operations.items():
            if not found[name].alone:  # the graph for GPUs is compared later
                found[name].alone = [row for text in samples.texts for row in each.run(float32, [text])]
                found[name].together = each.run(float32, samples.texts)
                found[name].float32, found[name].int8 = each.run(float32, texts), each.run(int8, texts)
        return agreement(float32, int8, texts)

    with mock.patch.object(importer, "agreement", recorded):
        settings = BundleSettings(
            name="made", version=1, description="Random weights.", licence="none", quantization="int8"
        )
        write_imported(importer, settings, output)
    return found


def _largest(found: Rows, expected: Rows) -> float:
    return max(float(np.abs(one - other).max()) for one, other in zip(found, expected, strict=True))


def _cost(compared: Compared, found: Found) -> Iterator[str]:
    """Return correlation, largest change and the fraction of equal first classes of the numbers of int8."""
    sides = (found.float32, found.int8)
    one, other = (
        _cosines(each) if compared.cosines else np.concatenate([row.ravel() for row in each]) for each in sides
    )
    yield f"{np.corrcoef(one, other)[0, 1]:.4f}"
    yield f"{np.abs(one - other).max():.3f}"
    best = [np.concatenate([np.atleast_2d(row).argmax(1) for row in each]) for each in sides]
    yield f"{np.mean(best[0] == best[1]):.3f}" if compared.classes else ""


def _cosines(rows: Rows) -> NDArray[np.float64]:
    vectors = np.stack(rows)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines: NDArray[np.float64] = (vectors @ vectors.T)[np.triu_indices(len(rows), 1)]
    return cosines


def _embed(model: Any, texts: Sequence[str]) -> Rows:
    return list(model.embed(texts, truncate=True).astype(np.float64))


def _rerank(model: Any, texts: Sequence[str]) -> Rows:
    return [np.array(each.score) for each in model.rerank(_QUERY, texts, truncate=True)]


def _regress(model: Any, texts: Sequence[str]) -> Rows:
    return [np.array(each.value) for each in model.regress(texts, truncate=True)]


def _classify(model: Classifier, texts: Sequence[str]) -> Rows:
    return list(np.exp(model.log_probabilities(texts).astype(np.float64)))


def _pairs(model: Classifier, texts: Sequence[str]) -> Rows:
    queries = model.pair_queries([(text, _QUERY) for text in texts], len(model.labels), truncate=True)
    rows = [{each.label: each.probability for each in found.labels} for found in model.run(queries)]
    return [np.array([row.get(label, 0.0) for label in model.labels]) for row in rows]


def _zero_shot(model: Classifier, texts: Sequence[str]) -> Rows:
    rows = model.zero_shot(texts, _CANDIDATES, truncate=True)
    found = [{each.label: each.probability for each in row.labels} for row in rows]
    return [np.array([row[label] for label in _CANDIDATES]) for row in found]


def _tag(model: Tagger, texts: Sequence[str]) -> Rows:
    encoded = [query.windows[0].encoded for query in model.queries(texts, truncate=True)]
    return [np.exp(row.astype(np.float64)) for row in model.log_probabilities(encoded)]


def _vectors(directory: Path, texts: Sequence[str]) -> Rows:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(directory), device="cpu")
    return [model.encode([text], show_progress_bar=False)[0] for text in texts]


def _scores(directory: Path, texts: Sequence[str]) -> Rows:
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(directory), device="cpu", max_length=512)
    return [model.predict([(_QUERY, text)], show_progress_bar=False)[0] for text in texts]


def _logits(directory: Path, texts: Sequence[str], second: str | None = None) -> list[torch.Tensor]:
    """Return the scores of each text, or of each pair, by transformers: `[C]`, or `[T, C]` of tokens."""
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(directory)
    named: Any = getattr(transformers, open_source(str(directory)).architecture)
    model = named.from_pretrained(directory).eval()
    others = () if second is None else (second,)
    with torch.no_grad():
        return [
            model(**tokenizer(text, *others, truncation=True, max_length=512, return_tensors="pt")).logits[0].double()
            for text in texts
        ]


def _numbers(directory: Path, texts: Sequence[str]) -> Rows:
    return [each[0].numpy() for each in _logits(directory, texts)]


def _probabilities(directory: Path, texts: Sequence[str], second: str | None = None) -> Rows:
    return [each.softmax(-1).numpy() for each in _logits(directory, texts, second)]


def _hypotheses(directory: Path, texts: Sequence[str]) -> Rows:
    columns = [
        torch.stack(_logits(directory, texts, f"This example is {label}."))[:, _ENTAILMENT.index("entailment")]
        for label in _CANDIDATES
    ]
    return list(torch.stack(columns, 1).softmax(1).numpy())


OPERATIONS: Mapping[str, Compared] = {
    "embed": Compared("Model", _embed, _vectors, cosines=True),
    "rerank": Compared("number", _rerank, _scores),
    "regress": Compared("number", _regress, _numbers),
    "classify": Compared("classes", _classify, _probabilities, classes=True),
    "classify, pairs": Compared(
        "classes", _pairs, lambda directory, texts: _probabilities(directory, texts, _QUERY), classes=True
    ),
    "zero-shot": Compared("classes", _zero_shot, _hypotheses, classes=True),
    "tag": Compared("tags", _tag, _probabilities, classes=True),
}
"""The operations of encoders by name."""


if __name__ == "__main__":
    tyro.cli(main)
