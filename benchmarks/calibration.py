"""Measure calibrated probabilities and prediction sets of classifiers, and compare the sets with those of MAPIE.

    pip install mapie                                             # optional, for the comparison
    python -m benchmarks.calibration --data-dir DIR --vectors DIR

CLINC150: the bundled classifier, by the validation and test splits of its recipe. Banking77 and Reuters-21578: output
layers, softmax and sparse-softmax, trained on the vectors of frozen MiniLM-L6 (bfloat16), which are kept in a directory
(`--vectors`). Validation examples are training texts of the corpus that are not trained on; they choose the epoch too.
"""

import copy
import importlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from models.errors import QueryError
from models.store import BUNDLED, load_bundle
from models.tasks.class_calibration import Calibration
from models.tasks.prediction_sets import Coverage, SetPredictor
from models.tasks.text_classification import Classifier
from training.data.corpora import get_corpus
from training.networks.hugging_face import load_text_encoder, load_tokenizer
from training.networks.pretrained import encoder_directory
from training.networks.text_classifier import pooled
from training.recipe.loading import parse_recipe
from training.softmax import GeneralizedSoftmax
from training.tasks.calibrated_classes import calibration_metrics
from training.tasks.class_calibration import ValidationExamples, fit_calibration, fit_sets, log_losses
from training.tasks.text_classification.reading import label_ids, read_labelled
from training.tasks.text_classification.settings import ClassificationRecipe

_LEVELS = (0.9, 0.95, 0.99)
_SPARSE_K = 20
_TEXTS_A_BATCH = 64
_EPOCHS = 40


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts of a corpus, and how output layers are trained on them."""

    name: str
    several: bool
    train: int
    validation: int
    max_tokens: int
    dated: bool = False
    """Whether texts are in the order of their dates, and test texts are later: the last ones are for validation."""


FROZEN = (Corpus("banking77", False, 6000, 4000, 64), Corpus("reuters90", True, 5769, 2000, 128, dated=True))


@dataclass(frozen=True, slots=True)
class Classified:
    """A classifier's log-probabilities on a validation and a test split."""

    name: str
    validation: ValidationExamples
    test: ValidationExamples
    listed: int
    """Number of the classes that results list."""


@torch.no_grad()
def vectors(texts: Sequence[str], max_tokens: int) -> NDArray[np.float32]:
    """Return the vectors of MiniLM-L6, `[N, d]`."""
    directory = encoder_directory("minilm-l6")
    encoder, tokens = load_text_encoder(directory).eval(), load_tokenizer(directory).encode_batch(texts, max_tokens)
    order = sorted(range(len(tokens)), key=lambda place: len(tokens[place]))
    found = np.empty((len(tokens), 384), np.float32)
    for first in range(0, len(order), _TEXTS_A_BATCH):
        group = order[first : first + _TEXTS_A_BATCH]
        lengths = torch.tensor([len(tokens[place]) for place in group])
        padded = torch.zeros(len(group), int(lengths.max()), dtype=torch.long)
        for row, place in enumerate(group):
            padded[row, : len(tokens[place])] = torch.tensor(tokens[place])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = encoder(padded, lengths)
        found[group] = pooled(hidden.float(), lengths, "mean").numpy()
    return found


def _frozen(corpus: Corpus, data_dir: Path, kept: Path) -> dict[str, tuple[Tensor, list[list[str]]]]:
    """Return vectors `[N, d]` of length 10 and labels of each split."""
    records = [(label, text) for label, text in get_corpus(corpus.name).records("train", data_dir)]
    if corpus.dated:
        records.reverse()
    else:
        random.Random(0).shuffle(records)
    end = corpus.validation + corpus.train
    splits = {
        "dev": records[: corpus.validation],
        "train": records[corpus.validation : end],
        "test": [(label, text) for label, text in get_corpus(corpus.name).records("test", data_dir)],
    }
    found = {}
    for split, pairs in splits.items():
        file = kept / f"{corpus.name}.{split}.npy"
        if not file.is_file():
            kept.mkdir(parents=True, exist_ok=True)
            np.save(file, vectors([text for _, text in pairs], corpus.max_tokens))
        labels = [label.split(",") if corpus.several else [label] for label, _ in pairs]
        found[split] = (10 * functional.normalize(torch.from_numpy(np.load(file)), dim=1), labels)
    return found


def trained(
    inputs: Tensor,
    labels: Sequence[Sequence[int]],
    classes: int,
    sparse_k: int | None,
    loss: Callable[[GeneralizedSoftmax], float],
) -> GeneralizedSoftmax:
    """Return an output layer trained on vectors `[N, d]`: that of the epoch, of 40, with the least `loss`."""
    torch.manual_seed(0)
    layer = GeneralizedSoftmax(num_classes=classes, hidden_size=inputs.shape[1], kernels=["lin"], sparse_k=sparse_k)
    rows = torch.tensor([row for row, some in enumerate(labels) for _ in some])
    targets = torch.tensor([label for some in labels for label in some])
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.02, weight_decay=0.0)
    least, best = math.inf, copy.deepcopy(layer.state_dict())
    for _ in range(_EPOCHS):
        for batch in torch.randperm(len(targets)).split(128):
            optimizer.zero_grad()
            (layer.loss(inputs[rows[batch]], targets[batch]).sum() / len(batch)).backward()
            optimizer.step()
        found = loss(layer)
        if found < least:
            least, best = found, copy.deepcopy(layer.state_dict())
    layer.load_state_dict(best)
    return layer


def _of_layer(corpus: Corpus, sparse_k: int | None, data_dir: Path, kept: Path) -> Classified:
    splits = _frozen(corpus, data_dir, kept)
    names = sorted({label for some in splits["train"][1] for label in some})
    places = {name: place for place, name in enumerate(names)}
    numbers = {
        split: [[places.get(label, len(names)) for label in some] for some in labels]
        for split, (_, labels) in splits.items()
    }

    @torch.no_grad()
    def examples(layer: GeneralizedSoftmax, split: str) -> ValidationExamples:
        table = layer.log_prob(splits[split][0]).double().numpy()
        return ValidationExamples.of(table, numbers[split], several=corpus.several)

    def loss(layer: GeneralizedSoftmax) -> float:
        dev = examples(layer, "dev")
        return float(log_losses(dev.log_probabilities, dev.truth, several=corpus.several).mean())

    layer = trained(splits["train"][0], numbers["train"], len(names), sparse_k, loss)
    kind = "softmax" if sparse_k is None else f"sparse-softmax, k = {sparse_k}"
    return Classified(f"{corpus.name}, {kind}", examples(layer, "dev"), examples(layer, "test"), len(names))


def _of_bundle(path: Path, data_dir: Path) -> Classified:
    model = load_bundle(path)
    assert isinstance(model, Classifier)
    recipe = parse_recipe(model.manifest.provenance.recipe)
    assert isinstance(recipe, ClassificationRecipe)
    splits = {}
    for split in ("dev", "test"):
        labelled = read_labelled(recipe.data, split, data_dir)
        table = model.log_probabilities([each.text for each in labelled])
        splits[split] = ValidationExamples.of(table, label_ids(labelled, model.labels), several=False)
    return Classified("clinc150, bundled, sparse-softmax, k = 20", splits["dev"], splits["test"], len(model.labels))


def _print_metrics(found: Sequence[Classified], calibrations: Sequence[Calibration | None]) -> None:
    print("| model | calibration | accuracy | ECE | | Brier score | | log-loss | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for each, calibration in zip(found, calibrations, strict=True):
        test = each.test
        table = test.log_probabilities if calibration is None else calibration.table(test.log_probabilities)
        before = calibration_metrics(test, test.log_probabilities, each.listed)
        after = calibration_metrics(test, table, each.listed)
        rows = np.arange(len(test))
        accuracy = [
            test.truth[rows, some[:, : each.listed].argmax(1)].mean() for some in (test.log_probabilities, table)
        ]
        numbers = " | ".join(f"{before[name]:.4f} | {after[name]:.4f}" for name in before)
        how = "none" if calibration is None else f"{calibration.method} {calibration.temperature:.3f}"
        print(f"| {each.name} | {how} | {accuracy[0]:.4f}, {accuracy[1]:.4f} | {numbers} |")


@dataclass(frozen=True, slots=True)
class Sets:
    """Prediction sets of test examples, `[N, C]`."""

    members: NDArray[np.bool_]
    truth: NDArray[np.bool_]

    def cell(self) -> str:
        """Return coverage in percent and mean size."""
        return f"{100 * (self.members & self.truth).any(1).mean():.1f}, {self.members.sum(1).mean():.3f}"


def _ours(sets: SetPredictor, table: NDArray[np.float64], coverage: Coverage) -> NDArray[np.bool_]:
    found = np.zeros(table.shape, bool)
    for row, values in enumerate(table):
        order = np.argsort(-values, kind="stable")
        found[row, order] = sets.members(values[order], order, coverage, row.to_bytes(4, "big"))
    return found


class _Computed:
    """A classifier as MAPIE expects it, whose inputs are probabilities."""

    def __init__(self, classes: int) -> None:
        self.classes_ = np.arange(classes)

    def fit(self, inputs: NDArray[np.float64], labels: NDArray[np.int64]) -> "_Computed":
        """Return itself."""
        del inputs, labels
        return self

    def predict_proba(self, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the inputs."""
        return inputs

    def predict(self, inputs: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the most probable classes."""
        return np.asarray(inputs.argmax(1))

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _mapie(
    validation: NDArray[np.float64], labels: NDArray[np.int64], test: NDArray[np.float64], level: float, how: str | bool
) -> NDArray[np.bool_]:
    """Return adaptive prediction sets by MAPIE, for `include_last_label` True or `randomized`."""
    mapie: Any = importlib.import_module("mapie.classification")

    model = mapie.SplitConformalClassifier(
        _Computed(test.shape[1]), confidence_level=level, conformity_score="aps", prefit=True, random_state=0
    )
    model.conformalize(validation, labels)
    _, found = model.predict_set(test, conformity_score_params={"include_last_label": how})
    return np.asarray(found[:, :, 0], bool)


def _print_sets(each: Classified, calibration: Calibration | None) -> None:
    fitted = fit_sets(each.validation, calibration)
    assert fitted is not None
    rows = np.frombuffer(fitted[1], "<f4").reshape(-1, 4).astype(np.float64)
    sets = SetPredictor.of(rows, fitted[0].penalty, each.test.truth.shape[1])
    validation, test = (
        some.log_probabilities if calibration is None else calibration.table(some.log_probabilities)
        for some in (each.validation, each.test)
    )
    labels = each.validation.truth.argmax(1)
    for level in _LEVELS:
        cells = []
        for options in ({}, {"randomized": True}, {"class_conditional": True}):
            try:
                coverage = sets.coverage(level, **options)
            except QueryError as error:
                cells.append(str(error))
                continue
            cells.append(Sets(_ours(sets, test, coverage), each.test.truth).cell())
        for how in (True, "randomized"):
            try:
                found = _mapie(_whole(validation), labels, _whole(test), level, how)
                cells.append(Sets(found, each.test.truth).cell())
            except ImportError:
                cells.append("")
        print(f"| {each.name} | {100 * level:g} % | {' | '.join(cells)} |", flush=True)


def _whole(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities that add up to 1 as closely as MAPIE demands."""
    found = np.exp(table)
    return np.asarray(found / found.sum(1, keepdims=True))


def main(data_dir: Path, vectors: Path, only: tuple[str, ...] = ()) -> None:
    """Print Markdown tables: metrics before and after calibration, then coverage in percent and mean size of sets.

    Args:
        data_dir: Directory that holds the corpora.
        vectors: Directory for the vectors of the frozen encoder, which take minutes to compute.
        only: Names of corpora; all without it.
    """
    found = [] if only and "clinc150" not in only else [_of_bundle(BUNDLED / "intents" / "2", data_dir)]
    for corpus in FROZEN:
        if not only or corpus.name in only:
            found += [_of_layer(corpus, sparse_k, data_dir, vectors) for sparse_k in (None, _SPARSE_K)]
    calibrations = [fit_calibration(each.validation).calibration for each in found]
    _print_metrics(found, calibrations)
    print("\n| model | coverage | default | randomized | class-conditional | MAPIE APS | MAPIE APS, randomized |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for each, calibration in zip(found, calibrations, strict=True):
        if not each.validation.several:
            _print_sets(each, calibration)


if __name__ == "__main__":
    tyro.cli(main)
