"""What fewer bits cost the vectors of an imported model: cosine similarities, and neighbours, compared with float32.

    python -m benchmarks.vector_precision my-models/minilm/1 texts.txt

Similarities are those of all texts of a file, two by two. Of bits they are 1 - 2 h / d for `h` bits of `d` that differ.
Neighbours are the 10 most similar texts of each text: the fraction of those of float32 that are found.
"""

from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from models.operations.encoding import Precision
from models.store import load_bundle
from models.tasks.text_embedding import Embedder

__all__ = ["similarities"]

_NEIGHBOURS = 10
_PRECISIONS: tuple[Precision, ...] = ("float16", "int8", "ubinary")


def similarities(vectors: NDArray[Any], *, bits: bool) -> NDArray[np.float64]:
    """Return the similarity of each two rows `[B, B]`: the cosine, or that of bits in bytes."""
    numbers = 2.0 * np.unpackbits(vectors, axis=1) - 1 if bits else vectors.astype(np.float64)
    units = numbers / np.linalg.norm(numbers, axis=1, keepdims=True)
    found: NDArray[np.float64] = units @ units.T
    return found


def main(bundle: tyro.conf.Positional[Path], texts: tyro.conf.Positional[Path]) -> None:
    """Print a row for each precision.

    Args:
        bundle: Directory of a bundle for `embed`.
        texts: A file with a text a line.
    """
    model = load_bundle(bundle)
    assert isinstance(model, Embedder)
    given = list(dict.fromkeys(texts.read_text(encoding="utf-8").splitlines()))
    expected = similarities(model.embed(given, truncate=True), bits=False)
    pairs = np.triu_indices(len(given), 1)
    print(f"{len(given)} texts, {len(pairs[0]):,} pairs")
    print("| precision | bytes of a vector | correlation | largest change | mean change | neighbours kept |")
    print("| --- | --- | --- | --- | --- | --- |")
    for precision in _PRECISIONS:
        vectors = model.embed(given, precision=precision, truncate=True)
        found = similarities(vectors, bits=precision == "ubinary")
        correlation = np.corrcoef(expected[pairs], found[pairs])[0, 1]
        change = np.abs(found[pairs] - expected[pairs])
        cells = [precision, f"{vectors[0].nbytes}", f"{correlation:.6f}", f"{change.max():.4f}", f"{change.mean():.5f}"]
        print("|", " | ".join([*cells, f"{_kept(expected, found):.3f}"]), "|")


def _kept(expected: NDArray[np.float64], found: NDArray[np.float64]) -> float:
    """Return the fraction of the nearest texts of each text that are also among the nearest by other similarities."""
    nearest = []
    for each in (expected, found):
        others = each - 3 * np.eye(len(each))
        nearest.append([set(row) for row in np.argsort(-others, axis=1, kind="stable")[:, :_NEIGHBOURS].tolist()])
    return float(np.mean([len(one & other) for one, other in zip(*nearest, strict=True)])) / _NEIGHBOURS


if __name__ == "__main__":
    tyro.cli(main)
