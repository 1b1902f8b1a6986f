"""Import of models of transformers for sequence classification with one number; see `regressor`.

Shapes: `B` texts.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from models.tasks.text_regression import Regressor
from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph
from training.bundling.weight_file import WeightFile
from training.importing.encoder import Encoder
from training.importing.errors import ImportRefused
from training.importing.importer import REGRESSOR, ImportOptions, register
from training.importing.regressor import RegressorImporter, score_activation
from training.importing.source import SourceDirectory

__all__ = ["RegressionImporter"]


@register(REGRESSOR)
class RegressionImporter(RegressorImporter):
    """The import of a model of transformers that gives a text, or a pair of texts, a number."""

    encoder: Encoder

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self.encoder = Encoder(source, options)
        if self.encoder.config.num_labels != 1:
            raise ImportRefused(
                "a model of regression with several numbers cannot be imported; export it to ONNX with the number "
                "that is needed as output logits, [texts, 1], and import that file"
            )
        self.activation = score_activation(source.config)

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        return {"regress": self.encoder.graph(weights, _OneNumber(), self.contract)}

    def largest_difference(self, model: Regressor, bundle: Path, texts: Sequence[str]) -> float:
        self.encoder.compare_tokens(self.encoder.tokenizer, texts)
        return super().largest_difference(model, bundle, texts)

    def reference_number(self, text: EncodedText) -> float:
        return float(self.encoder.reference(text).logits[0, 0])


class _OneNumber(nn.Module):
    def forward(self, output: Any, lengths: Tensor) -> Tensor:
        """Scores `[B, 1]` -> numbers `[B]`."""
        del lengths
        found: Tensor = output.logits[:, 0]
        return found
