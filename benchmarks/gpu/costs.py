"""The cost of batches against the cost model that the engine fits when it loads a model."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.gpu.results import Context, Values
from benchmarks.gpu.subjects import Subject, subjects
from service.engine.cost_model import Sample, Terms, fit
from service.engine.warm_up import warm_up

__all__ = ["run"]

_FITTED, _OTHERS = 32, 64
"""`max_batch_items` of the batches that the terms are fitted to, and of those that they are compared with."""
_SMALL_FITTED, _SMALL_OTHERS = 2, 3


def run(context: Context) -> None:
    """Write a row of each operation: the terms, and their relative error for shapes measured after the fit."""
    for subject in subjects(context):
        context.measure(subject.name, partial(_errors, context, subject))


def _errors(context: Context, subject: Subject) -> Values:
    model = subject.load(context)
    if context.small:
        model.warm_up_lengths = (1, 4)
    fitted, others = (_SMALL_FITTED, _SMALL_OTHERS) if context.small else (_FITTED, _OTHERS)
    first, second = (warm_up(model, max_batch_items=most, parallel_batches=1) for most in (fitted, others))
    return {operation: _compared(fit(samples), second[operation]) for operation, samples in first.items()}


def _compared(terms: Terms, samples: Sequence[Sample]) -> Mapping[str, Any]:
    """Return the terms in milliseconds and the error of each shape; steps of similar length are one shape."""
    errors: dict[str, list[float]] = defaultdict(list)
    for each in samples:
        length = 2 ** math.ceil(math.log2(max(1, each.longest)))
        errors[f"{each.items} x {length}"].append(terms.seconds(each.items, each.longest) / each.seconds - 1)
    shapes = {shape: statistics.median(values) for shape, values in errors.items()}
    absolute = [abs(error) for error in shapes.values()]
    milliseconds = {f"{name}_ms": 1000 * value for name, value in terms._asdict().items()}
    return {**milliseconds, "errors": shapes, "median_error": statistics.median(absolute), "worst_error": max(absolute)}
