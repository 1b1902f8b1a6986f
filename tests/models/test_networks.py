"""What manifests say of networks."""

import pytest
from pydantic import TypeAdapter, ValidationError

from models.networks import BertNetwork, ImageNetwork, LstmNetwork, Network, TransformerNetwork, UnilmNetwork

SIZES = {"hidden_size": 8, "inner_size": 16, "heads": 2, "layers": 1, "positions": 32}
NETWORKS = [
    (LstmNetwork, {"kind": "lstm", "hidden_size": 8, "num_layers": 2}),
    (
        TransformerNetwork,
        {"kind": "transformer", **{key: SIZES[key] for key in ("hidden_size", "inner_size", "heads")}}
        | {"encoder_layers": 1, "decoder_layers": 1, "norm": "pre"},
    ),
    (BertNetwork, {"kind": "bert", **SIZES, "pooling": "mean"}),
    (UnilmNetwork, {"kind": "unilm", **SIZES}),
    (ImageNetwork, {"kind": "densenet", "hidden_size": 8, "image_size": 32}),
]


@pytest.mark.parametrize(("network", "content"), NETWORKS)
def test_the_kind_says_which_network_it_is(network, content):
    assert type(TypeAdapter(Network).validate_python(content)) is network
    with pytest.raises(ValidationError, match="Extra inputs"):
        TypeAdapter(Network).validate_python(content | {"width": 3})


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValidationError, match="'rnn'"):
        TypeAdapter(Network).validate_python({"kind": "rnn"})
