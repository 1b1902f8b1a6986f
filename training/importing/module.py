"""Export of models in PyTorch, whatever trained them: text classifiers, and language models of transformers.

Shapes: `B` texts, `T` tokens, `C` classes, `k` classes asked for.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from models.text.encoding import EncodedText
from training.bundling.bundle import BundleGraph, BundleSettings, WrittenBundle
from training.bundling.folding import layer_section
from training.bundling.graphs import ExportGraph, random_sequences
from training.bundling.onnx import to_onnx
from training.bundling.onnx_tools import quiet
from training.bundling.topk import top_k
from training.bundling.weight_file import WeightFile
from training.importing.causal import CausalImporter
from training.importing.classifier import ClassifierImporter, checked_labels
from training.importing.errors import ImportRefused
from training.importing.importer import Agreement, Importer, ImportOptions, chosen_importer, write_imported
from training.importing.samples import read_samples
from training.importing.source import SourceDirectory
from training.importing.tokenizers import encoder_tokenizer
from training.settings import QuantizationName
from training.softmax import GeneralizedSoftmax

__all__ = ["export_bundle"]


_CLASSIFIER_TOKENS = 512
"""Longest text of a classifier by default, in tokens."""


def export_bundle(
    module: nn.Module,
    tokenizer: Any,
    labels: Sequence[str] | None = None,
    *,
    output: Path | str,
    name: str,
    licence: str,
    description: str,
    version: int = 1,
    max_tokens: int | None = None,
    quantize: QuantizationName = "none",
    texts: Path | None = None,
    force: bool = False,
    report: Callable[[str], object] = lambda line: print(line, file=sys.stderr),
) -> WrittenBundle[Agreement]:
    """Write `<output>/<name>/<version>/`, the bundle of a classifier or a language model, without a recipe or a run.

    With labels, `module(input_ids, attention_mask)` is a text classifier: of tokens and a mask that is 1 for tokens of
    the text, both `[B, T]`, it returns scores or log-probabilities `[B, C]`, or an object with those as `logits`. It is
    exported in evaluation mode. If it has one `GeneralizedSoftmax`, the manifest describes that as its output layer.
    The tokenizer is one of the library `tokenizers`, or of transformers with such inside, that frames texts as BERT
    does, with one token after each and perhaps one before. Texts have at most 512 tokens by default.

    Without labels, the module is a causal language model of transformers, with its own head or the one of
    `training.softmax.huggingface.replace_head`, and a fast tokenizer of transformers. It is imported as
    `softserve-train import` does what its `save_pretrained` writes.

    The module is compared with the bundle on sample texts, alone and in batches. `quantize` is `none`, `int8`, or, of
    language models, `int4`. `texts` is a file with a text a line,
    which the comparison and with `int8` the ranges of activations are taken from as well; `report` is called with a
    line for each step.

    Raises `ImportRefused` for a module, tokenizer or labels that cannot become a bundle, `FileExistsError` where that
    version exists and `force` is not set, and `pydantic.ValidationError` for a name that no bundle can have.
    """
    settings = BundleSettings(
        name=name, version=version, description=description, licence=licence, quantization=quantize, force=force
    )
    options = ImportOptions(max_tokens=max_tokens, samples=read_samples(texts))
    training = [part for part in module.modules() if part.training]
    try:
        with _importer(module, tokenizer, labels, options) as importer:
            return write_imported(importer, settings, Path(output), report)
    finally:
        for part in training:
            part.training = True


@contextmanager
def _importer(
    module: nn.Module, tokenizer: Any, labels: Sequence[str] | None, options: ImportOptions
) -> Iterator[Importer]:
    """Return the import of a classifier, or of a language model, which a temporary directory holds meanwhile."""
    if labels is not None:
        yield _ModuleImporter(module, tokenizer, labels, options)
        return
    with TemporaryDirectory() as directory:
        saved: tuple[Any, ...] = (module, tokenizer)
        for each in saved:
            if not hasattr(each, "save_pretrained"):
                raise ImportRefused(
                    f"{type(each).__name__} is none of transformers: a language model and its tokenizer must be, and a "
                    "classifier needs labels"
                )
            with quiet():
                each.save_pretrained(directory)
        source = SourceDirectory(Path(directory), _name(module))
        if chosen_importer(source) is not CausalImporter:
            raise ImportRefused(
                f"{source.architecture} is no causal language model; pass labels for a classifier, or save it "
                "and use softserve-train import"
            )
        yield CausalImporter(source, options)


def _name(module: nn.Module) -> str:
    """Return the path of a module's class."""
    return f"{type(module).__module__}.{type(module).__qualname__}"


class _ModuleImporter(ClassifierImporter):
    """The import of a module; its reference is the module itself."""

    reference = ("torch",)
    compares_tokens = False
    independent = False

    def __init__(self, module: nn.Module, tokenizer: Any, labels: Sequence[str], options: ImportOptions) -> None:
        super().__init__(SourceDirectory(Path(), _name(module)), options)
        max_tokens = _CLASSIFIER_TOKENS if options.max_tokens is None else options.max_tokens
        if max_tokens < 3:
            raise ImportRefused(f"max_tokens must be at least 3, not {max_tokens}")
        self._module, self.max_tokens = _Scores(module).eval(), max_tokens
        inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not isinstance(inner, Tokenizer):
            raise ImportRefused(
                f"{type(tokenizer).__name__} is no tokenizer of the library tokenizers, nor has one; pass "
                "tokenizers.Tokenizer, or a fast tokenizer of transformers"
            )
        self.tokenizer, self.special = encoder_tokenizer(inner)
        self.labels = checked_labels({str(number): label for number, label in enumerate(labels)}, "labels")
        heads = [layer for layer in module.modules() if isinstance(layer, GeneralizedSoftmax)]
        if len(heads) > 1:
            raise ImportRefused(
                f"the module has {len(heads)} layers GeneralizedSoftmax; an output layer is one; pass a module with one"
            )
        self._head = heads[0] if heads else None
        found = self.reference_log_probabilities(EncodedText((self.special.start or 0, self.special.end), 2)).shape
        if found != (len(self.labels),):
            raise ImportRefused(
                f"the module gives {list(found)} scores of a text, there are {len(self.labels)} labels; they must be "
                "equally many"
            )

    def softmax(self) -> Mapping[str, object] | None:
        return super().softmax() if self._head is None else layer_section(self._head)

    def architecture(self) -> str:
        return "PyTorch module"

    def network(self) -> Mapping[str, object]:
        sizes = dict.fromkeys(("hidden_size", "inner_size", "layers", "heads"))
        return {"architecture": self.source.name, **sizes, "positions": self.max_tokens}

    def network_line(self) -> str:
        return f"the PyTorch module `{self.source.name}`"

    def graphs(self, weights: WeightFile) -> Mapping[str, BundleGraph]:
        generator = torch.Generator().manual_seed(0)
        examples = random_sequences(self.tokenizer.vocab_size, 3, min(7, self.max_tokens), generator)
        graph = ExportGraph(_Classify(self._module).eval(), self.contract, (*examples, torch.tensor(1)))
        try:
            return {"classify": BundleGraph(self.contract, to_onnx(graph, weights))}
        except Exception as error:  # torch's exporter raises exceptions of many kinds
            raise ImportRefused(
                f"torch cannot export {self.source.name}: {error}; export it to ONNX otherwise and import that file"
            ) from error

    @torch.no_grad()
    def reference_log_probabilities(self, text: EncodedText) -> NDArray[np.float32]:
        tokens = text.tokens
        try:
            scores = self._module(torch.tensor([tokens]), torch.ones(1, len(tokens), dtype=torch.long))
        except Exception as error:  # the module's code is the caller's
            raise ImportRefused(
                f"{self.source.name} fails on a text of {len(tokens)} tokens, the largest being {max(tokens)}: {error}"
                "; is this too long (max_tokens), or is the tokenizer another model's?"
            ) from error
        found: NDArray[np.float32] = functional.log_softmax(scores.float(), dim=-1)[0].numpy()
        return found


class _Scores(nn.Module):
    """A classifier whose arguments have the names that transformers gives them, or are these two in order."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        names = inspect.signature(module.forward).parameters
        self._named = {"input_ids", "attention_mask"} <= set(names)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """tokens and mask `[B, T]` -> scores `[B, C]`."""
        arguments = {"input_ids": tokens, "attention_mask": mask}
        found = self.module(**arguments) if self._named else self.module(tokens, mask)
        scores: Tensor = getattr(found, "logits", found)
        return scores


class _Classify(nn.Module):
    """Computes the most probable classes of each text."""

    def __init__(self, scores: nn.Module) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, tokens: Tensor, lengths: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """tokens `[B, T]`, lengths `[B]`, k `[]` -> log-probabilities and numbers of the k best classes, `[B, k]`."""
        mask = (torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]).long()
        return top_k(functional.log_softmax(self.scores(tokens, mask).float(), dim=-1), k)
