"""What manifests say of networks."""

from typing import Annotated, Literal

from pydantic import Discriminator

from models.contract import Contract, PositiveInt

__all__ = ["BertNetwork", "ImageNetwork", "LstmNetwork", "Network", "TransformerNetwork", "UnilmNetwork"]


class LstmNetwork(Contract):
    """What a caller must know of a recurrent network to hold its state."""

    kind: Literal["lstm"]
    hidden_size: PositiveInt
    num_layers: PositiveInt


class TransformerNetwork(Contract):
    """What a caller must know of a Transformer to hold its caches."""

    kind: Literal["transformer"]
    hidden_size: PositiveInt
    inner_size: PositiveInt
    heads: PositiveInt
    encoder_layers: PositiveInt
    decoder_layers: PositiveInt
    norm: Literal["pre", "post"]
    positions: PositiveInt = 1024
    """Tokens that a sentence may have on either side, its end included."""


class BertNetwork(Contract):
    """What there is to know of an encoder of texts."""

    kind: Literal["bert"]
    hidden_size: PositiveInt
    inner_size: PositiveInt
    heads: PositiveInt
    layers: PositiveInt
    pooling: Literal["mean", "cls"]
    positions: PositiveInt
    """Tokens that a text may have, the special ones included."""


class UnilmNetwork(Contract):
    """What a caller must know of an encoder that also writes (Dong et al. 2019) to hold its caches."""

    kind: Literal["unilm"]
    hidden_size: PositiveInt
    inner_size: PositiveInt
    heads: PositiveInt
    layers: PositiveInt
    positions: PositiveInt
    """Tokens that a text and what is written of it may have together, the special ones included."""


class ImageNetwork(Contract):
    """What there is to know of an encoder of images."""

    kind: Literal["efficientnet-lite0", "densenet"]
    hidden_size: PositiveInt
    image_size: PositiveInt
    """Height and width that every image is brought to first."""


Network = Annotated[LstmNetwork | TransformerNetwork | UnilmNetwork | BertNetwork | ImageNetwork, Discriminator("kind")]
"""Of any task."""
