"""An imported model as the source of a bundle, and the registry of architectures.

A new architecture is one module of this package with a subclass of `Importer`, registered by the name that it has in
`architectures` of `config.json`.
"""

import abc
import importlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import onnx

from models.bundle.manifest import INT4_WEIGHTS, Manifest
from models.registry import Registry, UnknownNameError
from training.bundling.bundle import BundleSettings, BundleSource, BundleWriter, Draft, WrittenBundle
from training.bundling.model_card import Card, imported_card
from training.bundling.verify import TOLERANCE, check_device_graphs
from training.importing.errors import BY_ONNX, ImportRefused
from training.importing.onnx_graph import HIDDEN, LOGITS, VECTORS, gives_one_number, graph_outputs, read_graph
from training.importing.samples import BUILT_IN_SAMPLES, Samples
from training.importing.source import CONFIG, MODULES, SourceDirectory
from training.run.directory import git_revision

__all__ = [
    "ARCHITECTURES",
    "EMBEDDER",
    "ONNX",
    "ONNX_EMBEDDER",
    "ONNX_REGRESSOR",
    "ONNX_TAGGER",
    "REGRESSOR",
    "SEQUENCE_CLASSIFIER",
    "SETFIT",
    "SETFIT_HEAD",
    "TAGGER",
    "Agreement",
    "ImportOptions",
    "Importer",
    "chosen_importer",
    "need",
    "register",
    "write_imported",
]

ONNX, ONNX_TAGGER = "ONNX", "ONNX of token classification"
"""The architectures of sources that are ONNX files: of text classifiers, and of models that label tokens."""
ONNX_REGRESSOR, ONNX_EMBEDDER = "ONNX of one number", "ONNX of text embeddings"
"""The same of rerankers and models of regression, and of models that give vectors of texts."""

SEQUENCE_CLASSIFIER, REGRESSOR = "*ForSequenceClassification", "*ForSequenceClassification of one number"
"""The architectures of text classifiers, and of models that give a text or a pair of texts one number."""
TAGGER = "*ForTokenClassification"
"""The architecture of models that label the tokens of a text."""
EMBEDDER = "*Model"
"""The architecture of text embeddings: of directories of sentence-transformers, and of encoders without a head."""
SETFIT, SETFIT_HEAD = "SetFit", "model_head.pkl"
"""The architecture of classifiers that SetFit trained, and the file that tells them from other directories of
sentence-transformers."""

_OF_CAUSAL_MODELS = (
    "of causal language models GPT2LMHeadModel, and LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
    "Qwen3ForCausalLM, GPTNeoXForCausalLM, Gemma2ForCausalLM and Gemma3ForCausalLM can be"
)
_OF_TOKENS = "ForTokenClassification"
_ENCODERS = ("Model", "ForMaskedLM", "ForPreTraining")
"""Ends of the names of encoders without a head that the service could use."""
_INSTEAD = {
    "ForCausalLM": _OF_CAUSAL_MODELS,
    "LMHeadModel": _OF_CAUSAL_MODELS,
    "ForConditionalGeneration": "it generates texts; of such models MarianMTModel, and M2M100 (NLLB too), MBart, T5 "
    "and MT5 ForConditionalGeneration can be imported, to translate",
    "ForQuestionAnswering": "it marks answers in a text, which no operation does; import an encoder or a classifier",
    "ForMultipleChoice": "it chooses between texts, which no operation does; import an encoder or a classifier",
}
"""Reasons for refusing other architectures, by the end of their names."""
_WITHOUT_PADDING = "export the graph so that padding changes no result (attention_mask)"
"""Advice for ONNX files whose results in batches differ from those of single texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """Options of an import in addition to the directory."""

    max_tokens: int | None = None
    """Longest text, in tokens; the largest possible one by default."""
    languages: str | None = None
    """Source and target language of a translation model, such as `de-en`."""
    source_languages: str | None = None
    """Source languages that a bundle of a model with several is to have, separated by commas; all by default."""
    target_languages: str | None = None
    """The same of the target languages."""
    prefix: str | None = None
    """What asks a T5 model for a translation, before each sentence, such as `translate English to German: `."""
    pooling: str | None = None
    """How hidden states of an encoder become a vector, where no file of the directory says it."""
    samples: Samples = BUILT_IN_SAMPLES
    """Texts to compare the bundle with the original on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How far the results of quantized graphs agree with those of float32 on sample texts."""

    metric: str
    value: float
    """Fraction of the texts with the same best result."""
    difference: float
    """Largest difference of a probability."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Other values by name."""


class Importer(BundleSource[Agreement]):
    """An imported model: each architecture defines its section, files, graphs, comparison and quantization."""

    advice = "use --name or --version for another bundle, or --force to replace it"
    advice_on_difference: ClassVar[str] = BY_ONNX
    """What can be done where results are not those of the reference."""
    quantization: ClassVar[str | None] = "int8-static"
    """The method of `quantize`, as the manifest names it; None where there is none."""
    int4: ClassVar[bool] = False
    """Whether there is `quantize_int4`."""
    compares_tokens: ClassVar[bool] = True
    """Whether the tokens of sample texts are compared with those of another tokenizer."""
    compared: ClassVar[str] = "a log-probability"
    """The number that is compared with the reference."""
    quantity: ClassVar[str] = "a probability"
    """The number whose largest change by quantization is measured."""
    reference: tuple[str, ...] = ("transformers",)
    """The packages that compute the reference."""

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        """Raise `ImportRefused` for a model that cannot become a bundle."""
        self.source, self.options = source, options
        self._largest_difference = 0.0
        self._float32: Any = None
        """The loaded float32 bundle, with which the quantized one is compared; where there is one."""

    @abc.abstractmethod
    def largest_difference(self, model: Any, bundle: Path, texts: Sequence[str]) -> float:
        """Return the largest difference of a log-probability of the loaded float32 bundle from the reference.

        Each text is computed alone and in a batch. Raises `ImportRefused` where the tokens of a text differ.
        """

    def compare(self, draft: Draft, texts: Sequence[str]) -> float:
        """Return the same as `largest_difference` of a draft, which is loaded for it."""
        return self.largest_difference(draft.load(), draft.directory, texts)

    @abc.abstractmethod
    def quantize(
        self, models: Mapping[str, onnx.ModelProto], model: Any, texts: Sequence[str]
    ) -> Mapping[str, onnx.ModelProto]:
        """Return the graphs with int8 products, by ranges of activations on texts; `model` is the float32 bundle."""

    def quantize_int4(self, models: Mapping[str, onnx.ModelProto]) -> Mapping[str, onnx.ModelProto]:
        """Return the graphs with weights of 4 bits, of an architecture with `int4`."""
        raise NotImplementedError

    @abc.abstractmethod
    def agreement(self, float32: Any, lossy: Any, texts: Sequence[str]) -> Agreement:
        """Compare two loaded bundles."""

    @abc.abstractmethod
    def card(self) -> Card:
        """Return the sentences of the model card."""

    def softmax(self) -> Mapping[str, object] | None:
        """Return the output layer as the manifest describes it: inner products and a bias by default."""
        return {"kernels": [{"name": "lin"}], "bias": True}

    def architecture(self) -> str:
        """Return the class of the model in transformers, or its format."""
        return ONNX if self.source.onnx else self.source.architecture

    def provenance(self) -> Mapping[str, object]:
        source = self.source
        return {
            "recipe": {},
            "git_revision": git_revision(),
            "data": [],
            "training_seconds": 0,
            "source": {
                "name": source.name,
                "revision": source.revision,
                "architecture": self.architecture(),
                "files": source.checksums(),
                "compared_with": self._versions(),
                "largest_difference": self._largest_difference,
            },
        }

    def verify(self, draft: Draft) -> Mapping[str, float]:
        versions, texts = self._versions(), self.options.samples.compared()
        draft.report(f"comparing with {versions} on {len(texts)} texts")
        difference = self.compare(draft, texts)
        if not difference <= TOLERANCE:
            raise ImportRefused(
                f"{self.compared} differs from that of {versions} by {difference:.1e}, above {TOLERANCE:.0e}; "
                f"{_WITHOUT_PADDING if 'onnxruntime' in self.reference else self.advice_on_difference}"
            )
        self._largest_difference = difference
        return {versions: difference}

    def quantized(self, draft: Draft) -> Mapping[str, onnx.ModelProto]:
        self._float32 = draft.load()
        if draft.settings.quantization == "int4":
            return self.quantize_int4(draft.models)
        return self.quantize(draft.models, self._float32, self.options.samples.calibration())

    def measure(self, draft: Draft) -> None:
        if draft.settings.quantization == "none":
            return
        samples, texts = self.options.samples, self.options.samples.held_out()
        found = self.cost = self.agreement(self._float32, draft.load(), texts)
        derived = self.agreement(self._float32, draft.load(graphs="cuda"), texts)
        check_device_graphs(derived.difference, found.difference)
        name = f"texts of {samples.name}" if samples.name else "built-in sample texts"
        dataset = {"dataset": f"{len(texts)} {name}", "split": "held out"}
        values = {found.metric: found.value, f"largest difference of {self.quantity}": found.difference}
        values |= found.others
        draft.quality += [{"metric": metric, "value": round(each, 6), **dataset} for metric, each in values.items()]
        kind = INT4_WEIGHTS if draft.settings.quantization == "int4" else self.quantization
        draft.quantization = {"kind": kind, **draft.quality[0], "float32_value": 1.0}

    def model_card(self, manifest: Manifest) -> str:
        texts = len(self.options.samples.compared())
        return imported_card(manifest, self.card(), texts, self.compared, tokens=self.compares_tokens)

    def _versions(self) -> str:
        return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in self.reference)


ARCHITECTURES: Registry[type[Importer]] = Registry("training.importing", "architecture")
"""The importer of each architecture."""

register = ARCHITECTURES.register
"""Register an importer under an architecture: `@register("BertForSequenceClassification")`."""


def chosen_importer(source: SourceDirectory) -> type[Importer]:
    """Return the importer for a source: that of its architecture, or that of its kind of model.

    Raises `ImportRefused` for other architectures.
    """
    if source.onnx:
        return ARCHITECTURES[_onnx_architecture(source)]
    if source.has(SETFIT_HEAD):
        return ARCHITECTURES[SETFIT]
    name, config = source.architecture, source.config
    try:
        return ARCHITECTURES[name]
    except UnknownNameError as error:
        if name.endswith("ForSequenceClassification"):
            return ARCHITECTURES[REGRESSOR if _is_regression(config) else SEQUENCE_CLASSIFIER]
        if name.endswith(_OF_TOKENS):
            return ARCHITECTURES[TAGGER]
        if source.has(MODULES) or name.endswith(_ENCODERS):
            return ARCHITECTURES[EMBEDDER]
        instead = next((text for end, text in _INSTEAD.items() if name.endswith(end)), None)
        raise ImportRefused(f"{name} cannot be imported: {instead}" if instead else str(error)) from error


def _onnx_architecture(source: SourceDirectory) -> str:
    """Return the kind of an ONNX file, by its configuration if there is one and by its outputs."""
    config = source.json(CONFIG, optional=True)
    named = config.get("architectures")
    if isinstance(named, list) and any(str(each).endswith(_OF_TOKENS) for each in named):
        return ONNX_TAGGER
    outputs = graph_outputs(read_graph(source, weights=False))
    if LOGITS not in outputs and any(name in outputs for name in (VECTORS, *HIDDEN)):
        return ONNX_EMBEDDER
    return ONNX_REGRESSOR if _is_regression(config) or gives_one_number(source) else ONNX


def _is_regression(config: Mapping[str, Any]) -> bool:
    labels = config.get("id2label")
    count = len(labels) if isinstance(labels, dict) else config.get("num_labels", 2)
    return config.get("problem_type") == "regression" or (config.get("problem_type") is None and count == 1)


def write_imported(
    importer: Importer, settings: BundleSettings, output: Path, report: Callable[[str], object] = lambda line: None
) -> WrittenBundle[Agreement]:
    """Write `<output>/<name>/<version>/`; a failed import leaves nothing.

    `report` is called with a line for each step. Raises `FileExistsError` where that version exists and `force` is not
    set, `ImportRefused` where a log-probability differs from the reference by more than 1e-4, and for a quantization
    that the architecture does not have, `ExportError` where the graphs for GPUs of a quantized bundle are wrong.
    """
    if settings.quantization == "int4" and not importer.int4:
        others = "" if importer.quantization is None else ", or use --quantize int8"
        raise ImportRefused(
            f"--quantize int4 is for causal language models, which {importer.architecture()} is not; "
            f"leave it out{others}"
        )
    if settings.quantization == "int8" and importer.quantization is None:
        raise ImportRefused("models of this architecture are imported in float32; leave out --quantize")
    return BundleWriter(importer, settings, report).write(output)


def need(package: str) -> Any:
    """Return a module of the extra `import`; raises `ImportRefused`, which says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportRefused(f'imports need {package}: pip install "softserve[import]"') from error
