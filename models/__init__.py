"""Running trained models: from text in to result out. Without torch, unless a TorchScript file is loaded."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reports its use otherwise, from its import on

from models.classifier import Classifier
from models.errors import (
    BundleError,
    ModelError,
    QueryError,
    TextTooLongError,
    UnknownModelError,
    UnsupportedDeviceError,
)
from models.generator import Generator
from models.image_classifier import ImageClassifier
from models.language_model import LanguageModel
from models.manifest import Manifest
from models.store import ModelStore
from models.translator import Translator

__all__ = [
    "BundleError",
    "Classifier",
    "Generator",
    "ImageClassifier",
    "LanguageModel",
    "Manifest",
    "ModelError",
    "ModelStore",
    "QueryError",
    "TextTooLongError",
    "Translator",
    "UnknownModelError",
    "UnsupportedDeviceError",
]
