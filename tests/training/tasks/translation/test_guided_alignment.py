"""Guided alignment: the loss of a head of cross-attention, that it learns to align words, and its export."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.store import load_bundle
from models.tasks.translation import AlignmentHeads, TranslationConfig, Translator
from models.text.words import words_of
from training.data.batching import IGNORED
from training.data.pair_batching import PairBatch, pad
from training.data.token_links import linked_tokens, words_of_tokens
from training.networks.transformer import padding_mask
from training.recipe.loading import parse_recipe
from training.run.export import export_run
from training.run.loop import Trainer
from training.tasks.translation import TranslationTask, alignment, task
from training.tasks.translation.guided_alignment import alignment_loss
from training.tasks.translation.reading import split_pairs
from training.tasks.translation.settings import TranslationRecipe

TrainPairs = Callable[..., Trainer]
SHORT: dict[str, Any] = {"data": {"limit": 600}, "loop": {"epochs": 3}, "export": {"torchscript": False}}


@pytest.fixture(scope="module")
def plain(train_pairs: TrainPairs, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A short training without the field."""
    trainer = train_pairs(tmp_path_factory.mktemp("plain"), **SHORT)
    trainer.fit(lambda line: None)
    return trainer


@pytest.fixture(scope="module")
def guided(train_pairs: TrainPairs, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """The same training with a guided head."""
    trainer = train_pairs(tmp_path_factory.mktemp("guided"), **SHORT, guided_alignment={"weight": 2.0, "head": 1})
    trainer.fit(lambda line: None)
    return trainer


def _translation(trainer: Trainer) -> TranslationTask:
    assert isinstance(trainer.task, TranslationTask)
    return trainer.task


# ---- loss -------------------------------------------------------------------------------------------------


def test_the_loss_is_that_by_hand() -> None:
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.8, 0.1, 0.1], [0.2, 0.2, 0.6]]])
    links = torch.tensor([[[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]])
    by_hand = -(math.log(0.25) + 0.5 * math.log(0.8) + 0.5 * math.log(0.1)) / 2
    assert float(alignment_loss(weights.log(), links)) == pytest.approx(by_hand)
    assert float(alignment_loss(weights.log(), torch.zeros_like(links))) == 0


def test_the_attention_of_a_head_is_that_of_its_queries_and_keys(guided: Trainer) -> None:
    model = _translation(guided).model.eval()
    source, lengths, target = pad([[5, 6, 7, 8], [9, 4]], 0), torch.tensor([4, 2]), pad([[0, 5, 9], [0, 7]], 0)
    with torch.no_grad():
        hidden, _, log_weights = model.with_attention(source, lengths, target, layer=0, head=1)
        torch.testing.assert_close(hidden, model(source, lengths, target))
        layer = model.network.decoder_layers()[0]
        ((keys, _),) = model.encode(source, lengths)
        vectors = torch.nn.functional.embedding(target, model.target_vectors)
        inputs = model.network.dropout(vectors * model.network.embedding_scale + model.network.positions[:3])
        read = layer.before(0, inputs)
        attended = layer.self_attention(read, layer.self_attention.keys_values(read), None, causal=True)
        query = layer.cross_attention.query(layer.before(1, layer.after(0, inputs, attended)))[:, :, 16:]
        scores = (query @ keys[:, 1].transpose(1, 2) / 4).masked_fill(~padding_mask(lengths, 4)[:, 0], -torch.inf)
    torch.testing.assert_close(log_weights.exp(), scores.softmax(dim=-1))
    assert log_weights.dtype == torch.float32
    assert not log_weights[1, :, 2:].exp().any()


def test_the_training_loss_has_the_alignment_loss_and_no_other_has_it(guided: Trainer) -> None:
    translation = _translation(guided)
    links = torch.zeros(1, 3, 3)
    links[0, 0, 1] = links[0, 1, 0] = 1
    source, inputs, targets = pad([[5, 6, 0]], 0), pad([[0, 5, 9]], 0), pad([[5, 9, 0]], IGNORED)
    batch = PairBatch(
        source=source,
        source_lengths=torch.tensor([3]),
        inputs=inputs,
        targets=targets,
        indices=torch.tensor([0]),
        links=links,
    )
    with torch.no_grad():
        translation.model.eval()
        alone, count = translation.loss(batch)
        _, _, log_weights = translation.model.with_attention(source, batch.source_lengths, inputs, layer=0, head=1)
        translation.model.train()
        both, _ = translation.loss(batch)
    assert count == 3
    mean = -(log_weights[0, 0, 1] + log_weights[0, 1, 0]) / 2
    torch.testing.assert_close(both, alone + 2 * 3 * mean)


# ---- training ---------------------------------------------------------------------------------------------


def _accuracy(translation: TranslationTask) -> float:
    """Return the fraction of target tokens at which the largest weight of head 1 is at the right word."""
    model, tokenizer = translation.model.eval(), translation.tokenizer
    right = []
    for pair in split_pairs(translation.recipe.data, "test", translation.data_dir):
        source, target = tokenizer.encode_batch(pair)
        ours, theirs = (words_of_tokens(tokenizer.source_spans(text), words_of(text)) for text in pair)
        gold = linked_tokens(np.eye(len(words_of(pair[0])), dtype=bool), ours, theirs)
        given = torch.tensor([[*source, tokenizer.end_id]]), torch.tensor([len(source) + 1])
        with torch.no_grad():
            _, _, weights = model.with_attention(*given, torch.tensor([[tokenizer.end_id, *target]]), layer=0, head=1)
        best = weights[0, : len(target), : len(source)].argmax(dim=1).numpy()
        right += [row[place] > 0 for row, place in zip(gold, best, strict=True) if row.any()]
    return float(np.mean(right))


def test_a_guided_head_aligns_words_better(plain: Trainer, guided: Trainer) -> None:
    with_links, without = (_accuracy(_translation(each)) for each in (guided, plain))
    assert (with_links > 0.5, with_links > without + 0.15) == (True, True), (with_links, without)


def test_nothing_changes_without_the_field(
    plain: Trainer, train_pairs: TrainPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight of almost 0 has the curve of a run without the field, which fits no aligner."""
    with monkeypatch.context() as patch:
        patch.setattr(task, "fitted_aligner", lambda settings, pairs: pytest.fail("an aligner was fitted"))
        assert next(iter(_translation(plain).batches("train").epoch(0))).links is None
    trainer = train_pairs(
        tmp_path, **(SHORT | {"loop": {"epochs": 1}}), guided_alignment={"weight": 1e-12, "iterations": 1}
    )
    trainer.fit(lambda line: None)
    ours, theirs = (run.progress.history[0].train_loss for run in (trainer, plain))
    assert ours == pytest.approx(theirs, rel=1e-3)


# ---- recipe -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"layer": 1}, r"guided_alignment\.layer must be 0 to 0 in this network, not 1"),
        ({"head": 2}, r"guided_alignment\.head must be 0 to 1 in this network, not 2"),
        ({"weight": 0}, r"guided_alignment\.weight"),
        ({"iterations": 0}, r"guided_alignment\.iterations"),
        ({"heads": 1}, r"guided_alignment\.heads"),
    ],
    ids=str,
)
def test_errors_name_the_field(section: dict[str, Any], message: str, pairs_recipe: TranslationRecipe) -> None:
    with pytest.raises(ValueError, match=message):
        parse_recipe(pairs_recipe.model_dump() | {"guided_alignment": section})


# ---- export -----------------------------------------------------------------------------------------------


def test_the_bundle_aligns_words_with_the_guided_head(
    guided: Trainer, tmp_path: Path, tiny_data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numerals have no spelling that is the same on both sides, so their links are given."""
    monkeypatch.setattr(alignment, "known_links", _in_order)
    exported = export_run(guided.run, tmp_path, tiny_data_dir)
    config = exported.manifest.config
    assert isinstance(config, TranslationConfig)
    assert isinstance(config.alignment, AlignmentHeads)
    assert config.alignment.heads == ((0, 1),)
    assert config.alignment.offset == 0
    model = load_bundle(exported.path, threads=1)
    assert isinstance(model, Translator)
    (found,) = model.translate(["eins zwei drei"], alignment=True)
    assert found.translations[0].alignment


def _in_order(source: str, target: str) -> dict[int, int]:
    return {each: each for each in range(min(len(words_of(source)), len(words_of(target))))}
