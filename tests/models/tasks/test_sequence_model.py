"""Tests of what models that generate texts have in common."""

import pytest

from models.store import load_bundle
from models.tasks.sequence_model import SequenceModel


def layers_of(network):
    return network.decoder_layers if network.kind == "transformer" else network.layers


@pytest.mark.parametrize("name", ["notes", "de-en"])
def test_a_decoding_counts_the_memory_of_the_models_own_decoder(name, notes_export, store):
    model = load_bundle(notes_export.path, threads=1) if name == "notes" else store.load(name, threads=1)
    assert isinstance(model, SequenceModel)
    decoding = model.start_decoding(2)
    assert (len(decoding), decoding.search.beam_size) == (0, 2)
    network, width, steps = model.config.network, 8, 12
    positions = 2 * steps + width
    cached = (2 * layers_of(network) + 1) * network.hidden_size * positions
    vectors = 2 * (1 if network.kind == "transformer" else 2)  # a text generator may append a mask token to each
    copying = len(model.manifest.output_layer.components)
    scores = 3 * vectors * network.heads * (positions + vectors - 2) + (3 + 4 * copying) * 2 * model.config.vocab_size
    source = copying * 2 * width * (4 * network.hidden_size + 8 + 8)  # states, tokens and their first places
    attention = 2 * steps * (8 * (4 + 4) + 8 + 32)  # of each step 8 source tokens and their weights, and its origin
    assert decoding.reserved_bytes([(5, 3)]) == 4 * (cached + scores) + 2 * vectors * positions + attention + source
