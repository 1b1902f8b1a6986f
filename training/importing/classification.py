"""Import of encoders for sequence classification: BERT, RoBERTa, XLM-RoBERTa, DistilBERT, ELECTRA, DeBERTa-v2 and v3.

Shapes: `T` tokens, `C` classes.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError

from training.bundling.bundle import BundleGraph
from training.bundling.graphs import ExportGraph, random_sequences
from training.bundling.onnx import to_onnx
from training.bundling.onnx_tools import quiet
from training.importing.classifier import ClassifierImporter, checked_labels
from training.importing.encoder_graph import ClassifyEncoderGraph, log_probabilities
from training.importing.errors import ImportRefused, described
from training.importing.importer import ImportOptions, need, register
from training.importing.source import CONFIG, SourceDirectory
from training.importing.tokenizers import compare_tokens, encoder_tokenizer, reference_tokenizer

__all__ = [
    "SequenceClassifierImporter",
    "classifier_config",
    "classifier_labels",
    "is_multi_label",
    "load_classifier",
]

_MORE_PARAMETERS = 1.05
"""How many times more parameters a configuration may describe than the weights have."""


class _Sizes(BaseModel):
    """The fields of a configuration that an import depends on, within the means of a machine."""

    vocab_size: Annotated[int, Field(ge=1, le=1 << 23)]
    hidden_size: Annotated[int, Field(ge=1, le=1 << 15)]
    inner_size: Annotated[int, Field(ge=1, le=1 << 17)]
    layers: Annotated[int, Field(ge=1, le=512)]
    heads: Annotated[int, Field(ge=1, le=512)]
    positions: Annotated[int, Field(ge=3, le=1 << 17)]
    """Rows of the table of positions."""
    labels: Annotated[int, Field(ge=1, le=1 << 20)]
    padding: Annotated[int, Field(ge=0)] | None
    is_decoder: Literal[False]
    position_embedding_type: Literal["absolute"]
    quantization_config: None


@register("BertForSequenceClassification")
@register("DebertaV2ForSequenceClassification")
@register("DistilBertForSequenceClassification")
@register("ElectraForSequenceClassification")
@register("RobertaForSequenceClassification")
@register("XLMRobertaForSequenceClassification")
class SequenceClassifierImporter(ClassifierImporter):
    """The import of a classifier of transformers whose attention sees all tokens."""

    def __init__(self, source: SourceDirectory, options: ImportOptions) -> None:
        super().__init__(source, options)
        self._architecture = source.architecture
        model_class = getattr(need("transformers"), source.architecture)
        config = classifier_config(model_class, source)
        self._sizes = _sizes(config)
        self.independent = is_multi_label(source.config.get("problem_type"), self._sizes.labels)
        self.labels = classifier_labels(source, self._sizes.labels)
        reference = reference_tokenizer(source)
        self.tokenizer, self.special = encoder_tokenizer(reference.backend_tokenizer)
        self._reference_tokenizer = reference
        if self.tokenizer.vocab_size > self._sizes.vocab_size:
            raise ImportRefused(
                f"the tokenizer has {self.tokenizer.vocab_size} tokens, more than vocab_size of {CONFIG}, "
                f"{self._sizes.vocab_size}"
            )
        self._positions = self._sizes.positions - (self._first_position() or 0)
        self.max_tokens = _max_tokens(self._positions, reference.model_max_length, options.max_tokens)
        self._model = load_classifier(model_class, config, source)

    def _first_position(self) -> int | None:
        """Return the number of the first token's position: RoBERTa numbers them from that after the padding's."""
        if self._architecture.startswith("Deberta"):
            return None
        if "Roberta" not in self._architecture:
            return 0
        if self._sizes.padding is None:
            raise ImportRefused(f"{CONFIG} has no pad_token_id, after which positions are numbered")
        return self._sizes.padding + 1

    def network(self) -> Mapping[str, object]:
        sizes = self._sizes.model_dump(include={"hidden_size", "inner_size", "heads", "layers"})
        return {"architecture": self._architecture, **sizes, "positions": self._positions}

    def network_line(self) -> str:
        sizes = self._sizes
        return (
            f"{sizes.layers} layers, {sizes.hidden_size} hidden units, {sizes.heads} heads, "
            f"feed-forward {sizes.inner_size}"
        )

    def graphs(self) -> Mapping[str, BundleGraph]:
        module = ClassifyEncoderGraph(
            self._model, first_position=self._first_position(), independent=self.independent
        ).eval()
        generator = torch.Generator().manual_seed(0)
        examples = random_sequences(self._sizes.vocab_size, 3, min(7, self._positions), generator)
        graph = ExportGraph(module, self.contract, (*examples, torch.tensor(1)))
        return {"classify": BundleGraph(self.contract, to_onnx(graph))}

    def largest_difference(self, model: Any, bundle: Any, texts: Sequence[str]) -> float:
        compare_tokens(self.tokenizer, self._reference_tokenizer, texts)
        return super().largest_difference(model, bundle, texts)

    @torch.no_grad()
    def reference_log_probabilities(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        logits = self._model(input_ids=torch.tensor([tokens])).logits
        found: NDArray[np.float32] = log_probabilities(logits, independent=self.independent)[0].numpy()
        return found


def classifier_config(model_class: Any, source: SourceDirectory) -> Any:
    """Return the configuration of transformers; raises `ImportRefused` for fields that its class refuses."""
    try:
        return model_class.config_class.from_dict(dict(source.config))
    except Exception as error:  # its strict checks raise exceptions of several libraries
        raise ImportRefused(f"{CONFIG}: {error}") from error


def _sizes(config: Any) -> _Sizes:
    """Return the checked sizes of a configuration of transformers, whose names it translates to those of BERT."""
    try:
        return _Sizes(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            inner_size=getattr(config, "intermediate_size", getattr(config, "hidden_dim", None)),
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            positions=config.max_position_embeddings,
            labels=config.num_labels,
            padding=config.pad_token_id,
            is_decoder=getattr(config, "is_decoder", False),
            position_embedding_type=getattr(config, "position_embedding_type", None) or "absolute",
            quantization_config=getattr(config, "quantization_config", None),
        )
    except ValidationError as error:
        raise ImportRefused(f"{CONFIG}: {described(error)}") from error


def is_multi_label(problem_type: object, labels: int) -> bool:
    """Return whether each class has a sigmoid of its own; raises `ImportRefused` for regression and for one class."""
    if problem_type == "regression" or (problem_type is None and labels == 1):
        raise ImportRefused("the model is one for regression; models with two classes or more can be imported")
    if problem_type not in (None, "single_label_classification", "multi_label_classification"):
        raise ImportRefused(f"problem_type {problem_type!r} in {CONFIG} is not known")
    if labels < 2:
        raise ImportRefused("the model has one class; models with two classes or more can be imported")
    return problem_type == "multi_label_classification"


def classifier_labels(source: SourceDirectory, count: int) -> tuple[str, ...]:
    """Return the labels, those of transformers where the configuration has none."""
    found = source.config.get("id2label") or {str(number): f"LABEL_{number}" for number in range(count)}
    return checked_labels(found, CONFIG)


def _max_tokens(positions: int, stated: object, wanted: int | None) -> int:
    if wanted is not None and not 2 < wanted <= positions:
        raise ImportRefused(f"--max-tokens must be from 3 to {positions}, the positions of the model, not {wanted}")
    return wanted or min(positions, stated if isinstance(stated, int) and stated > 2 else positions)


def load_classifier(model_class: Any, config: Any, source: SourceDirectory) -> Any:
    """Return the model in float32; raises `ImportRefused` where the weights are not those that it needs."""
    tensors = source.weights()
    with torch.device("meta"):
        wanted = sum(parameter.numel() for parameter in model_class(config).parameters())
    stored = sum(tensor.numel() for tensor in tensors.values())
    if wanted > stored * _MORE_PARAMETERS:
        raise ImportRefused(f"{CONFIG} describes {wanted} parameters, the weights have {stored}")
    need("transformers").utils.logging.disable_progress_bar()
    try:
        with quiet():
            model, report = model_class.from_pretrained(
                None,
                config=config,
                state_dict=tensors,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
            )
    except (RuntimeError, ValueError, TypeError) as error:
        raise ImportRefused(f"the weights do not fit {CONFIG}: {error}") from error
    if missing := sorted(report["missing_keys"]):
        raise ImportRefused(f"the weights lack {', '.join(missing[:5])}{' and others' if len(missing) > 5 else ''}")
    return model.eval().requires_grad_(False)
