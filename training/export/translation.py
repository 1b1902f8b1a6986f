"""What the export of a translation model does differently from that of other tasks."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import sacrebleu
import torch

from models.backend import Backend
from models.beam_search import SearchOptions
from models.decoding import Decoding
from models.manifest import Manifest
from models.store import Model
from models.translator import Translator
from training.export.calibration import RangeRecorder
from training.export.quantize import quantize_int8_static
from training.export.translation_graphs import EncoderGraph, example_source, example_step, translation_graphs
from training.tasks.translation import TranslationTask, split_pairs

__all__ = ["TranslationExport", "bundle_bleu"]

_CALIBRATION_SENTENCES = 256
_CALIBRATION_BATCH = 32

_POSITIONS = ("network.positions",)
"""Of no size, and the encoder has them as they are."""

_SHAPES = ((1, 1, 1), (2, 5, 40), (5, 3, 11))
"""Sentences, hypotheses and source lengths to compare at; none is what was traced (3, 2, 7)."""


class TranslationExport:
    """Graphs, manifest fields and quality of a translation model."""

    torchscript = "translation_model.pt"
    quantization = "int8-static"

    def __init__(self, task: TranslationTask) -> None:
        self.task = task
        self.tokenizer = task.tokenizer
        self.graphs = translation_graphs(task.model)

    def files(self) -> Mapping[str, str]:
        return {}

    def description(self) -> Mapping[str, object]:
        network, data = self.task.recipe.network, self.task.recipe.data
        positions = self.task.model.network.positions.shape[0]
        sizes = network.model_dump(exclude={"preset", "dropout"})
        return {
            "network": {"kind": "transformer", **sizes, "positions": positions},
            "languages": {"source": data.source, "target": data.target},
        }

    @torch.no_grad()
    def largest_difference(self, backend: Backend, manifest: Manifest) -> float:
        """Over both graphs, all outputs and several shapes; padding is not compared."""
        del manifest
        encoder = self.graphs["encode"].module
        assert isinstance(encoder, EncoderGraph)
        worst = 0.0
        for seed, (batch_size, beam, length) in enumerate(_SHAPES):
            source, lengths = example_source(self.task.model, batch_size=batch_size, length=length, seed=10 + seed)
            step = example_step(
                self.task.model, encoder, batch_size=batch_size, beam=beam, length=length, seed=10 + seed
            )
            for name, inputs in (("encode", (source, lengths)), ("step", step)):
                contract = self.graphs[name].contract
                names = [tensor.name for tensor in contract.outputs]
                feed = {spec.name: value.numpy() for spec, value in zip(contract.inputs, inputs, strict=True)}
                expected = dict(zip(names, self.graphs[name].module(*inputs), strict=True))
                got = dict(zip(names, backend.run(name, feed, names), strict=True))
                for key, value in expected.items():
                    if key == "candidates":  # equal scores may change places
                        continue
                    with np.errstate(invalid="ignore"):  # minus infinity, where sparse, is equal to itself
                        difference = np.where(got[key] == value.numpy(), 0, np.abs(got[key] - value.numpy()))
                    if key.startswith("memory"):
                        padding = np.arange(length) >= lengths.numpy()[:, None]
                        np.moveaxis(difference, 2, 1)[padding] = 0
                    worst = float(np.maximum(worst, np.max(difference)))
        return worst

    def quantize(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        """Int8 products, by the ranges that activations have while training sentences are translated."""
        task, recorder = self.task, RangeRecorder(models)
        texts = [source for source, _ in split_pairs(task.recipe.data, "train", task.data_dir)]
        sources = task.tokenizer.encode_batch(texts[:: -(-len(texts) // _CALIBRATION_SENTENCES)])
        for first in range(0, len(sources), _CALIBRATION_BATCH):
            group = sources[first : first + _CALIBRATION_BATCH]
            decoding = Decoding(
                recorder,
                layers=task.recipe.network.decoder_layers,
                beam_size=4,
                end_id=task.tokenizer.end_id,
                vocab_size=task.tokenizer.vocab_size,
                idle_share=0.0,  # what sentences that are over compute would count too
            )
            decoding.add(group, [(index, SearchOptions(), 2 * len(ids) + 10) for index, ids in enumerate(group)])
            while len(decoding):
                decoding.step()
        return {
            name: quantize_int8_static(model, recorder.ranges(name), keep=_POSITIONS) for name, model in models.items()
        }

    def measure(self, model: Model, split: str, corpus: str | None = None) -> Mapping[str, float]:
        assert isinstance(model, Translator)
        data = self.task.recipe.data
        if corpus is not None:
            data = data.model_copy(update={"corpus": corpus, "files": None})
        return bundle_bleu(model, split_pairs(data, split, self.task.data_dir))


def bundle_bleu(model: Translator, pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """BLEU and chrF of a loaded bundle, beam size 5, through the same code that serves it."""
    translations = [result.translations[0].text for result in model.translate([source for source, _ in pairs])]
    references = [target for _, target in pairs]
    return {
        "BLEU": sacrebleu.corpus_bleu(translations, [references]).score,
        "chrF": sacrebleu.corpus_chrf(translations, [references]).score,
    }
