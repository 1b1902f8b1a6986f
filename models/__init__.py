"""Run trained models, from text in to result out; without torch, unless a TorchScript file is loaded."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reports its use otherwise, from its import on

from models.bundle.manifest import Manifest
from models.errors import (
    BundleError,
    ModelError,
    NativeError,
    QueryError,
    TextTooLongError,
    TooManyPartsError,
    UnknownModelError,
    UnsuitableModelError,
    UnsupportedDeviceError,
)
from models.store import ModelStore
from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.image_classification import ImageClassifier
from models.tasks.language_model import LanguageModel
from models.tasks.text_classification import Classifier
from models.tasks.text_generation import Generator
from models.tasks.translation import Translator

__all__ = [
    "BundleError",
    "CausalLanguageModel",
    "Classifier",
    "Generator",
    "ImageClassifier",
    "LanguageModel",
    "Manifest",
    "ModelError",
    "ModelStore",
    "NativeError",
    "QueryError",
    "TextTooLongError",
    "TooManyPartsError",
    "Translator",
    "UnknownModelError",
    "UnsuitableModelError",
    "UnsupportedDeviceError",
]
