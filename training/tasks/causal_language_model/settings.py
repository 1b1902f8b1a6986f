"""The recipe of a causal language model."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from training.networks.causal_transformer import CausalSettings, LayerSettings, Rotary
from training.networks.pretrained import weight_sources
from training.networks.pretrained_causal import CausalDescription
from training.recipe import Recipe
from training.run.directory import RunDirectory
from training.settings import Fraction, PositiveInt, Settings
from training.tasks.initial_run import initial_run
from training.tasks.language_model.settings import TextData

__all__ = [
    "PRETRAINED",
    "Body",
    "CausalDataSettings",
    "CausalLanguageModelRecipe",
    "CausalNetworkSettings",
    "Distillation",
]

PRETRAINED = "pretrained"
"""The teacher that is the pretrained model of the run itself."""
_ROTARY_BASE = 10_000.0
_EPSILON = 1e-6
_INNER_MULTIPLE = 32
_SIZES = ("hidden_size", "inner_size", "layers", "heads", "key_value_heads")

Body = Literal["trained", "lora", "frozen"]
"""What of a pretrained network learns: all, low-rank corrections of its matrices, or nothing."""


class CausalDataSettings(TextData):
    """The training data of a causal language model."""

    searchable = ("batch_tokens",)

    vocab_size: PositiveInt = 8000
    """Tokens of the vocabulary: the end of a text, the 256 bytes and merges of them, learnt from the training split."""
    deduplicate: bool = False
    """Whether repeated training sentences count once (development and test data are never touched)."""
    lower_case: Fraction = 0.0
    """Share of the training lines that occur a second time, in lower case: people type so."""
    context: Literal["sentence", "stream"] = "sentence"
    """`sentence`: each line is a text, and texts of similar lengths are padded to one. `stream`: the lines are parts of
    documents, and training windows hold parts of several documents, which do not see each other."""
    document_start: str | None = None
    """A regular expression that the first line of a document matches, with `context: stream`; without it the lines of a
    split are one document."""
    batch_tokens: PositiveInt = 4096
    """Positions a batch, padding included."""

    @field_validator("document_start")
    @classmethod
    def _valid_expression(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"document_start: {error}") from error
        return value

    def _ineffective(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.context == "sentence":
            yield ("document_start",), "with context: sentence"
        else:
            yield ("lower_case",), "with context: stream"


class CausalNetworkSettings(Settings):
    """The Transformer that computes the context vectors: a pretrained one, or one of these sizes from scratch.

    From scratch it has RMSNorm before attention and feed-forward network, rotary positions and gated feed-forward
    networks, as in Llama (Touvron et al. 2023).
    """

    pretrained: str | None = None
    """A directory in Hugging Face's layout of a causal language model that `softserve-train import` reads, or
    `hf:owner/name@revision`. The run takes over its network, weights and tokenizer; the projection matrix of the output
    layer starts at its own."""
    body: Body = "trained"
    """What learns of a pretrained network, the tokens' vectors included: all (`trained`), low-rank corrections of the
    matrices of attention and feed-forward networks (`lora`, Hu et al. 2021), which are merged into the matrices at
    export, or nothing (`frozen`). The output layer is trained; with `tied` its projection matrix belongs to the
    network."""
    lora_rank: PositiveInt = 8
    """Rank of the corrections, with `body: lora`."""
    lora_alpha: Annotated[float, Field(gt=0)] = 16.0
    """Corrections are multiplied by `lora_alpha / lora_rank`, with `body: lora`."""
    hidden_size: PositiveInt = 256
    """Size of the tokens' vectors and context vectors, from scratch."""
    inner_size: PositiveInt | None = None
    """Width of the feed-forward networks, from scratch; without it 8/3 of `hidden_size`, as a multiple of 32."""
    layers: PositiveInt = 4
    """Transformer layers, from scratch."""
    heads: PositiveInt = 4
    """Heads of attention in each layer, from scratch."""
    key_value_heads: PositiveInt | None = None
    """Heads of keys and values, from scratch, each of which serves several heads (Ainslie et al. 2023); `heads` without
    it."""
    positions: Annotated[int, Field(ge=2)] = 256
    """The longest text in tokens, the start included, at most that of a pretrained network; longer ones are cut. The
    exported model accepts texts of one token less, or of `export.max_tokens` where that is less."""
    dropout: Fraction = 0.1
    """On the tokens' vectors and on the outputs of attention and feed-forward networks."""
    tied: bool = True
    """Whether the tokens' vectors are the rows of the output layer's projection matrix."""

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(f"hidden_size must be a multiple of twice heads, {2 * self.heads}, not {self.hidden_size}")
        if self.key_value_heads is not None and self.heads % self.key_value_heads:
            raise ValueError(f"key_value_heads must divide heads, {self.heads}, and {self.key_value_heads} does not")
        if self.pretrained is None and self.body != "trained":
            raise ValueError(f"body: {self.body} needs a pretrained network; name its directory as pretrained")
        return self

    def _ineffective(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.pretrained is not None:
            yield _SIZES, "with pretrained"
        if self.body != "lora":
            yield ("lora_rank", "lora_alpha"), f"with body: {self.body}"

    def of_pretrained(self, found: CausalDescription) -> CausalSettings:
        """Return the settings of a pretrained network, with the dropout of these.

        Raises `ValueError` for sizes of these settings, other than their defaults, that are not those of the network,
        for more positions than it has, and for `tied` where the model has an output matrix of its own.
        """
        settings = found.settings
        sizes = {name: getattr(settings, name) for name in _SIZES} | {"layers": len(settings.layers)}
        for name, value in sizes.items():
            if (given := getattr(self, name)) not in (type(self).model_fields[name].default, value):
                raise ValueError(
                    f"network.{name}: {given} is not that of the pretrained network, {value}; leave it out"
                )
        if self.positions > settings.positions:
            raise ValueError(
                f"network.positions: {self.positions} is more than the {settings.positions} of the pretrained network"
            )
        if self.tied and not found.tied:
            raise ValueError(
                "network.tied: the pretrained model has token vectors and an output matrix, which differ; take "
                "tied: false"
            )
        return replace(settings, dropout=self.dropout)

    def of_vocabulary(self, vocab_size: int) -> CausalSettings:
        """Return the settings of the network for so many tokens."""
        inner = -(-8 * self.hidden_size // (3 * _INNER_MULTIPLE)) * _INNER_MULTIPLE
        size = self.hidden_size // self.heads
        return CausalSettings(
            vocab_size=vocab_size,
            hidden_size=self.hidden_size,
            inner_size=self.inner_size or inner,
            heads=self.heads,
            key_value_heads=self.key_value_heads or self.heads,
            head_size=size,
            positions=self.positions,
            layers=(LayerSettings(rotary=Rotary(size=size, base=_ROTARY_BASE)),) * self.layers,
            activation="silu",
            norm="rms",
            epsilon=_EPSILON,
            gated=True,
            attention_scale=size**-0.5,
            dropout=self.dropout,
        )


class Distillation(Settings):
    """Learning from the distributions of another model, the teacher (Hinton et al. 2015)."""

    teacher: str
    """A run directory of this task; a directory of a pretrained model, or `hf:owner/name@revision`, as for
    `network.pretrained`; or `pretrained`, the model of `network.pretrained` with its own output layer. Its vocabulary
    must be that of the run, which a run from scratch takes over from a teacher that is one."""
    weight: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Weight of the divergence from the teacher's distributions; the loss of the texts has the rest."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the scores of both models in the divergence."""


class CausalLanguageModelRecipe(Recipe):
    """A causal Transformer of subword tokens."""

    task: Literal["causal-language-model"]
    data: CausalDataSettings
    network: CausalNetworkSettings = CausalNetworkSettings()
    initial: str | None = None
    """Run directory to start from: its vocabulary and its best weights. Network and output layer must be the same, from
    scratch; it cannot be given with `network.pretrained`."""
    distillation: Distillation | None = None
    """A teacher; without one, the model learns from the texts alone."""

    @model_validator(mode="after")
    def _possible_distillation(self) -> Self:
        if self.distillation is None:
            return self
        if self.distillation.teacher == PRETRAINED and self.network.pretrained is None:
            raise ValueError("distillation.teacher: pretrained needs network.pretrained")
        if self.output_layer.alpha != 1.0 or self.output_layer.sparse_k is not None:
            raise ValueError(
                "distillation: the divergence from a teacher is infinite where a probability is 0, as with "
                "output_layer.alpha or output_layer.sparse_k"
            )
        return self

    @model_validator(mode="after")
    def _one_beginning(self) -> Self:
        if self.initial is not None and self.network.pretrained is not None:
            raise ValueError("initial and network.pretrained exclude each other: a run starts from one of them")
        return self

    def ineffective_fields(self) -> Iterator[str]:
        yield from super().ineffective_fields()
        default = CausalDataSettings.model_fields["vocab_size"].default
        if self.network.pretrained is not None and self.data.vocab_size != default:
            yield "data.vocab_size has no effect with network.pretrained"

    def sources(self) -> list[dict[str, str]]:
        """Return the data of this run and of its initial run or model; raises the errors of `initial_run`."""
        own = super().sources()
        earlier = [] if self.initial is None else initial_run(self.initial).recipe().sources()
        found = [*own, *weight_sources(self.network.pretrained), *(each for each in earlier if each not in own)]
        return [*found, *(each for each in self._teacher_sources() if each not in found)]

    def _teacher_sources(self) -> list[dict[str, str]]:
        if self.distillation is None or self.distillation.teacher == PRETRAINED:
            return []
        run = RunDirectory(Path(self.distillation.teacher))
        return run.recipe().sources() if run.best.is_file() else weight_sources(self.distillation.teacher)

    @property
    def longest_piece(self) -> int:
        """Return the longest piece of a text in tokens, its end included and the start before it not.

        The exported model reads as many after the start.
        """
        return self.network.positions - 1
