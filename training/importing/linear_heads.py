"""Heads of scikit-learn on vectors of texts, read without running anything of their files.

`joblib` writes them as pickles. Here a pickle may name the classes of linear classifiers and of arrays, and nothing
else: the former become objects without behaviour, of which coefficients, intercepts and classes are taken.

Shapes: `C` classes, `d` dimensions.
"""

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib.numpy_pickle import NumpyArrayWrapper, NumpyUnpickler
from numpy.typing import NDArray

from training.importing.errors import ImportRefused

__all__ = ["LinearHead", "read_linear_head"]

_INSTEAD = (
    "train a LogisticRegression on the vectors, import encoder and head as one ONNX file with the output logits, or "
    "import the directory without the head, as embeddings"
)
"""What can be done with a head that is refused."""
_LARGEST = 1 << 30
"""Bytes of the largest file that is read."""


@dataclass(frozen=True, slots=True)
class LinearHead:
    """A linear classifier."""

    coefficients: NDArray[np.float64]
    """`[C, d]`; of two classes that exclude each other, the first has zeros."""
    intercepts: NDArray[np.float64]
    """`[C]`."""
    classes: tuple[str, ...]
    """What the head calls its classes: numbers or labels."""
    independent: bool
    """Whether each class has a sigmoid of its own, instead of one softmax of all."""


class _Plain:
    """An object of scikit-learn: its attributes, whatever they are."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class _LogisticRegression(_Plain):
    pass


class _Several(_Plain):
    """One classifier for each class."""


class _Array(NumpyArrayWrapper):  # type: ignore[misc]
    """An array of numbers or of texts, no larger than its file."""

    def read_array(self, unpickler: Any, *arguments: Any) -> NDArray[Any]:
        size = math.prod(int(each) for each in self.shape) * self.dtype.itemsize
        if self.dtype.hasobject or not 0 <= size <= unpickler.most_bytes:
            raise pickle.UnpicklingError("it has arrays of objects, or larger ones than its size")
        found: NDArray[Any] = super().read_array(unpickler, *arguments)
        return found


_CLASSES = {
    ("sklearn.linear_model._logistic", "LogisticRegression"): _LogisticRegression,
    ("sklearn.linear_model.logistic", "LogisticRegression"): _LogisticRegression,
    ("sklearn.multiclass", "OneVsRestClassifier"): _Several,
    ("sklearn.multioutput", "MultiOutputClassifier"): _Several,
    ("sklearn.preprocessing._label", "LabelBinarizer"): _Plain,
    ("joblib.numpy_pickle", "NumpyArrayWrapper"): _Array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
"""All that a pickle may name."""


class _Unpickler(NumpyUnpickler):  # type: ignore[misc]
    most_bytes: int

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _CLASSES:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _CLASSES[module, name]


def read_linear_head(path: Path) -> LinearHead:
    """Read logistic regression, alone or one for each of several independent classes, from a file of joblib.

    Raises `ImportRefused` for other classifiers, and for files that name anything else.
    """
    size = path.stat().st_size
    if size > _LARGEST:
        raise ImportRefused(f"{path.name} has more than {_LARGEST >> 20} MiB; {_INSTEAD}")
    try:
        with path.open("rb") as file:
            unpickler = _Unpickler(str(path), file, True)
            unpickler.most_bytes = size
            found = unpickler.load()
        return _head(found)
    except ImportRefused:
        raise
    except Exception as error:  # damaged pickles raise exceptions of many kinds
        raise ImportRefused(
            f"{path.name} is read as a logistic regression of scikit-learn alone, without running it, and is not one: "
            f"{error or type(error).__name__}; {_INSTEAD}"
        ) from error


def _head(found: Any) -> LinearHead:
    if isinstance(found, _Several):
        labels = getattr(found, "label_binarizer_", None)
        if labels is not None and not str(labels.y_type_).startswith("multilabel"):
            raise _one_versus_rest()
        rows = [_row(each) for each in found.estimators_]
        coefficients, intercepts = (np.stack(each) for each in zip(*rows, strict=True))
        return LinearHead(coefficients, intercepts, tuple(map(str, range(len(rows)))), independent=True)
    if not isinstance(found, _LogisticRegression):
        raise ImportRefused(f"the head is no logistic regression; {_INSTEAD}")
    classes = tuple(str(each) for each in np.asarray(found.classes_).tolist())
    coefficients, intercepts = np.asarray(found.coef_, np.float64), _intercepts(found)
    if len(classes) == 2 and len(coefficients) == 1:
        coefficients = np.concatenate([np.zeros_like(coefficients), coefficients])
        intercepts = np.concatenate([np.zeros_like(intercepts), intercepts])
    elif _is_one_versus_rest(found):
        raise _one_versus_rest()
    if coefficients.ndim != 2 or coefficients.shape[0] != len(classes) or intercepts.shape != (len(classes),):
        raise ImportRefused(f"the coefficients of the head are not those of its classes; {_INSTEAD}")
    return LinearHead(coefficients, intercepts, classes, independent=False)


def _row(found: Any) -> tuple[NDArray[np.float64], float]:
    """Return coefficients `[d]` and intercept of a classifier of one class against its absence."""
    if not isinstance(found, _LogisticRegression) or len(found.classes_) != 2 or len(found.coef_) != 1:
        raise ImportRefused(f"the head has other classifiers of single classes than logistic regression; {_INSTEAD}")
    return np.asarray(found.coef_, np.float64)[0], float(_intercepts(found)[0])


def _intercepts(found: Any) -> NDArray[np.float64]:
    """Return the intercepts, a zero for each row of coefficients where none were fitted."""
    return np.asarray(np.broadcast_to(np.asarray(found.intercept_, np.float64), len(found.coef_)))


def _one_versus_rest() -> ImportRefused:
    return ImportRefused(
        f"the head normalizes one sigmoid for each class (one versus rest), which is not known; {_INSTEAD}"
    )


def _is_one_versus_rest(found: Any) -> bool:
    stated: Sequence[object] = (getattr(found, "multi_class", None), getattr(found, "solver", None))
    return stated[0] == "ovr" or (stated[0] != "multinomial" and stated[1] == "liblinear")
