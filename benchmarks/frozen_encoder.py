"""Measure a baseline of classification: logistic regression on the vectors of a frozen encoder.

    python -m benchmarks.frozen_encoder --data-dir DIR

The encoder is MiniLM-L6, its vectors are normalized to length 1, all in-scope training texts of CLINC150 are used. The
strength of regularization is that with the best accuracy on the validation set.
"""

from pathlib import Path

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch.nn import functional

from training.data.corpora import get_corpus
from training.data.text_batching import TextBatches
from training.networks.hugging_face import load_text_encoder, load_tokenizer
from training.networks.pretrained import encoder_directory
from training.networks.text_classifier import pooled
from training.tasks.evaluation import evaluate_examples

STRENGTHS = (1.0, 3.0, 10.0, 30.0)
"""Inverse strengths of regularization that are tried."""


def vectors(texts: list[str]) -> NDArray[np.float32]:
    """Return the encoder's vectors of texts, `[N, d]`."""
    directory = encoder_directory("minilm-l6")
    encoder = load_text_encoder(directory)
    tokens = load_tokenizer(directory).encode_batch(texts, 64)
    batches = TextBatches(tokens, [()] * len(texts), batch_tokens=2048)
    rows = evaluate_examples(
        encoder, batches, lambda batch: pooled(encoder(batch.tokens, batch.lengths), batch.lengths, "mean")
    )
    found: NDArray[np.float32] = functional.normalize(torch.stack(rows), dim=1).numpy()
    return found


def main(data_dir: Path) -> None:
    """Print the accuracy on the validation set for each strength, and that of the best one on the test set."""
    corpus = get_corpus("clinc150")
    labels, inputs = {}, {}
    for split in ("train", "dev", "test"):
        labels[split], texts = zip(*corpus.records(split, data_dir), strict=True)
        inputs[split] = vectors(list(texts))
    models = [
        LogisticRegression(C=strength, max_iter=1000).fit(inputs["train"], labels["train"]) for strength in STRENGTHS
    ]
    scores = [model.score(inputs["dev"], labels["dev"]) for model in models]
    for strength, score in zip(STRENGTHS, scores, strict=True):
        print(f"C = {strength:g}: validation accuracy {score:.4f}")
    best = models[int(np.argmax(scores))]
    print(f"test accuracy {best.score(inputs['test'], labels['test']):.4f}, {len(labels['test'])} texts")


if __name__ == "__main__":
    tyro.cli(main)
