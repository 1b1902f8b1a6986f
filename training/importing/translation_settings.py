"""The fields of `config.json` that translation models have in common."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training.importing.errors import BY_OWN_IMPORTER, ImportRefused, described

__all__ = ["BartSettings", "Size", "Token", "TranslationSettings"]

Size = Annotated[int, Field(ge=1)]
Token = Annotated[int, Field(ge=0)]


class TranslationSettings(BaseModel):
    """The fields of `config.json` that say what a model computes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    bad_words_ids: tuple[tuple[Token, ...], ...] | None = None

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> Self:
        """Return the settings; raises `ImportRefused` for a model of another kind."""
        try:
            return cls.model_validate({**cls.defaults(config), **config})
        except ValidationError as error:
            raise ImportRefused(f"config.json: {described(error)}; {BY_OWN_IMPORTER}") from error

    @classmethod
    def defaults(cls, config: Mapping[str, object]) -> Mapping[str, object]:
        """Return the defaults that depend on other fields, which are those of transformers."""
        del config
        return {}

    @property
    def never_generated(self) -> frozenset[int]:
        """Return the tokens that no output has: what `bad_words_ids` excludes by itself."""
        return frozenset(words[0] for words in self.bad_words_ids or () if len(words) == 1)


class BartSettings(TranslationSettings):
    """The fields of models that follow fairseq's names, as MarianMT, M2M100 and mBART do."""

    vocab_size: Size
    d_model: Size = 1024
    max_position_embeddings: Size = 1024
    encoder_layers: Size = 12
    decoder_layers: Size = 12
    encoder_ffn_dim: Size = 4096
    decoder_ffn_dim: Size = 4096
    encoder_attention_heads: Size = 16
    decoder_attention_heads: Size = 16
    activation_function: Literal["relu", "gelu", "silu", "swish"]
    scale_embedding: bool
    tie_word_embeddings: bool = True

    @property
    def activation(self) -> Literal["relu", "gelu", "silu"]:
        return "silu" if self.activation_function == "swish" else self.activation_function
