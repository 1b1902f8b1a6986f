"""The recipe of a translation model."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from training.data.augmentation import Augmentation
from training.data.corpora import get_corpus
from training.data.settings import CorpusOrFiles, corpus_sources
from training.recipe import Recipe
from training.settings import Fraction, PositiveInt, Settings
from training.tasks.translation.initial import initial_sources

__all__ = [
    "FurtherPairs",
    "GuidedAlignment",
    "GuidedCopying",
    "PairSettings",
    "TransformerSettings",
    "TranslationRecipe",
]


class FurtherPairs(Settings):
    """How pairs of a further corpus take part; a number alone is `copies`."""

    copies: PositiveInt = 1
    """How often each of the pairs is in an epoch."""
    draw: PositiveInt | None = None
    """So many of the pairs, drawn anew for each epoch; all without it."""
    augment: bool = True
    """Whether there are changed copies of the pairs too."""
    dev: int = Field(default=0, ge=0)
    """So many of the corpus's development pairs count for the selection of the model."""

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, given: object) -> object:
        return {"copies": given} if isinstance(given, int) else given

    @model_serializer(mode="wrap")
    def _as_number(self, serialize: SerializerFunctionWrapHandler) -> object:
        return self.copies if self == FurtherPairs(copies=self.copies) else serialize(self)


class PairSettings(CorpusOrFiles):
    """The training data of a translation model."""

    held_out_unit: ClassVar[str] = "sources"

    source: str
    """Code of the language to translate from (ISO 639-1), which is also the name of the corpus's column."""
    target: str
    """Code of the language to translate into."""
    vocab_size: Annotated[int, Field(ge=258)] = 8000
    """Tokens of the joint byte-pair encoding; 258 of them are bytes, `<unk>` and `</s>`."""
    batch_tokens: PositiveInt = 4096
    """Positions a batch and side, padding included."""
    max_tokens: PositiveInt = 256
    """Longer training pairs are left out, and those that are longer than the positions of the network."""
    separate_digits: bool = False
    """Make each digit a token of its own, so that numbers are copied digit by digit."""
    draw: PositiveInt | None = None
    """So many of the training pairs, drawn anew for each epoch; all without it."""
    also: Mapping[str, FurtherPairs] = {}
    """More corpora of the registry to train on: how often each of their pairs is in an epoch, or `copies`, `draw`,
    `augment` and `dev`."""
    augment: Augmentation | None = None
    """Changed copies of the training pairs, drawn anew for each epoch."""
    made_up_names: Fraction = 0.0
    """Fraction of the names in slots and exchanges that are made up, so that a model learns to copy unknown ones."""

    def sources(self) -> list[dict[str, str]]:
        further = [each for name in self.also for each in corpus_sources(get_corpus(name))]
        return [*super().sources(), *(each for place, each in enumerate(further) if each not in further[:place])]

    def dataset(self, split: str) -> str:
        further = [name for name, each in self.also.items() if each.dev] if split == "dev" else []
        return " + ".join([super().dataset(split), *further])


_PRESETS: Mapping[str, Mapping[str, int]] = {
    "tiny": {"hidden_size": 128, "inner_size": 256, "heads": 4, "encoder_layers": 4, "decoder_layers": 4},
    "small": {"hidden_size": 256, "inner_size": 1024, "heads": 4, "encoder_layers": 3, "decoder_layers": 3},
    "base": {"hidden_size": 512, "inner_size": 1024, "heads": 4, "encoder_layers": 6, "decoder_layers": 6},
}


class TransformerSettings(Settings):
    """The Transformer that computes the context vectors; fields that are given go before the preset's."""

    preset: Literal["tiny", "small", "base"] = "small"
    """Sizes to start from: `tiny` 128/256, 4+4 layers; `small` 256/1024, 3+3; `base` (the paper's) 512/1024, 6+6."""
    hidden_size: PositiveInt
    """Size of word vectors and context vectors."""
    inner_size: PositiveInt
    """Width of the feed-forward networks."""
    heads: PositiveInt
    """Attention heads; they divide the hidden size."""
    encoder_layers: PositiveInt
    """Layers that read the source."""
    decoder_layers: PositiveInt
    """Layers that write the target."""
    norm: Literal["pre", "post"] = "pre"
    """Where layer normalization stands: before each sublayer, or after it as in the original."""
    dropout: Fraction = 0.1
    """On word vectors and on what sublayers add to them."""

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, given: object) -> object:
        if isinstance(given, dict) and (preset := given.get("preset", "small")) in _PRESETS:
            return {**_PRESETS[preset], **given}
        return given

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % self.heads or self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even and divisible by heads, not {self.hidden_size}, {self.heads}")
        return self


class GuidedAlignment(Settings):
    """Training of one head of cross-attention towards links between words (Garg et al. 2019, section 4.2).

    The links are learnt from the training pairs before the first update; see `training.data.statistical_alignment`.
    """

    weight: Annotated[float, Field(gt=0)] = 0.05
    """Factor of the alignment loss, which is added to the translation loss: the mean cross-entropy of the head's
    attention at target positions with links."""
    layer: Annotated[int, Field(ge=0)] | None = None
    """Decoder layer of the head, from 0 on; the last but one without it, as in the paper."""
    head: Annotated[int, Field(ge=0)] = 0
    """Number of the head, from 0 on."""
    iterations: PositiveInt = 5
    """Iterations of expectation maximization by which the links are learnt."""

    def place(self, layers: int) -> tuple[int, int]:
        """Return layer and number of the head in a decoder with so many layers."""
        return max(0, layers - 2) if self.layer is None else self.layer, self.head


class GuidedCopying(Settings):
    """Training of a component `copy` towards the places of the source at which a target stands."""

    weight: Annotated[float, Field(gt=0)] = 0.5
    """Factor of the copying loss, which is added to the translation loss: the mean negative log-probability that the
    component gives to targets that stand in the source."""
    alone: bool = False
    """Train nothing but the component and the weights of the mixture: the model of `initial` learns to copy in a third
    of the time, and otherwise stays as it is."""


class TranslationRecipe(Recipe):
    """A translation model."""

    source_components: ClassVar[bool] = True
    task: Literal["translation"]
    data: PairSettings
    network: TransformerSettings = Field(default_factory=lambda: TransformerSettings.model_validate({}))
    initial: str | None = None
    """Run directory or bundle to start from, such as `bundled/de-en/5`: its tokenizer and its best weights. Network and
    output layer must be the same, but a network with `norm: pre` may have more layers, which change nothing at first,
    and an output layer may have a further component `copy`, which has little weight at first; the int8 weights of a
    bundle are dequantized."""
    new_vocabulary: bool = False
    """Build a vocabulary of the training data instead of taking that of `initial`. Word vectors of tokens that the
    initial model does not have start as the mean of those that spell them there."""
    guided_alignment: GuidedAlignment | None = None
    """Train one head of cross-attention to align words, which `alignment` of the bundle then uses; not by default."""
    guided_copying: GuidedCopying | None = None
    """Train a component `copy` of the output layer to point at the targets in the source; not by default."""

    @model_validator(mode="after")
    def _vocabulary_of_something(self) -> Self:
        if self.new_vocabulary and self.initial is None:
            raise ValueError("new_vocabulary is for a run that starts from a model: set initial too")
        return self

    @model_validator(mode="after")
    def _guided_head_exists(self) -> Self:
        if (guided := self.guided_alignment) is not None:
            layer, head = guided.place(self.network.decoder_layers)
            for name, number, count in (
                ("layer", layer, self.network.decoder_layers),
                ("head", head, self.network.heads),
            ):
                if number >= count:
                    raise ValueError(f"guided_alignment.{name} must be 0 to {count - 1} in this network, not {number}")
        return self

    @model_validator(mode="after")
    def _copies_what_it_guides(self) -> Self:
        if (guided := self.guided_copying) is None:
            return self
        if not any(each.reads_source for each in self.output_layer.other_components()):
            raise ValueError("guided_copying needs a component copy in output_layer.kernels")
        if guided.alone and self.initial is None:
            raise ValueError("guided_copying.alone leaves all other parameters as they are: set initial too")
        if guided.alone and self.guided_alignment is not None:
            raise ValueError("guided_copying.alone trains no attention: leave guided_alignment out")
        return self

    def ineffective_fields(self) -> Iterator[str]:
        yield from super().ineffective_fields()
        if self.guided_alignment is not None and self.loop.compile:
            yield "loop.compile has no effect with guided_alignment"
        if self.output_layer.other_components() and self.loop.compile:
            yield "loop.compile has no effect with an output layer that copies"

    def sources(self) -> list[dict[str, str]]:
        """Return the data of this run, and of the model that it starts from; raises the errors of `initial_sources`."""
        own = super().sources()
        earlier = [] if self.initial is None else initial_sources(self.initial)
        return [*own, *(each for each in earlier if each not in own)]
