"""The heads of cross-attention that align words best, and the attention output of a bundle.

Heads are chosen by links that are known without a dictionary: a name or a number that a sentence and its translation
both have once stands for itself.

Shapes: `B` sentences, `L` decoder layers, `H` heads, `S` source tokens, `T` target tokens, `M` slots, `d` hidden size.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from models.bundle.manifest import MANIFEST
from models.decoding.alignment import word_weights
from models.decoding.attention import strongest
from models.decoding.beam_search import Hypothesis
from models.reading import load_manifest, parse_manifest, sha256_of
from models.store import load_bundle
from models.tasks.translation import AlignmentHeads, TranslationConfig, TranslationQuery, Translator
from models.text.words import Span, words_of
from training.bundling.attention_output import (
    contract_with_attention,
    num_cross_attentions,
    with_all_attention,
    with_attention,
)
from training.bundling.bundle import BundleGraph, Draft, place

__all__ = ["LinkedSentence", "add_alignment", "chosen_heads", "extend_draft", "known_links", "sentences_with_links"]

Weights = NDArray[np.float32]

_BATCH = 16
_MOST_HEADS = 6
"""Heads whose mean is tried: those that are best alone."""
_TOLERANCE = 0.01
"""Accuracy that the mean of more heads may cost: known links are of names and numbers, on which single heads may do
well that align other words badly. Means of up to 6 heads had half the alignment error of the best head."""
_WRITING: Literal[0] = 0
"""Offset of a head that attends to the source of the word that is written."""
_FEWEST = 20
"""Words with known links that are needed to choose heads."""
_MOST_TEXTS = 1500
_MOST_SENTENCES = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedSentence:
    """A sentence, its translation by the model, and links that are known."""

    source: str
    source_ids: tuple[int, ...]
    """Tokens of the source, without the end."""
    source_tokens: Sequence[Span]
    """Characters of each token."""
    target: str
    target_ids: tuple[int, ...]
    """Tokens of the translation, without the end."""
    target_tokens: Sequence[Span]
    links: Mapping[int, int]
    """Source word of target words whose link is known."""


def known_links(source: str, target: str) -> dict[int, int]:
    """Return the source word of each target word that is spelled the same, once on both sides, and no common word.

    These are numbers, and words of three letters and more that begin with a capital letter.
    """
    ours, theirs = ([text[start:end] for start, end in words_of(text)] for text in (source, target))
    counts = Counter(ours), Counter(theirs)
    return {
        theirs.index(word): ours.index(word)
        for word in counts[0].keys() & counts[1].keys()
        if counts[0][word] == counts[1][word] == 1 and (word[0].isdigit() or (word[0].isupper() and len(word) > 2))
    }


def sentences_with_links(model: Translator, texts: Sequence[str]) -> list[LinkedSentence]:
    """Return the sentences of texts whose greedy translation has words with known links."""
    queries = [model.query(text, 1, truncate=True) for text in texts]
    outputs = iter(model.decoder.search([part for query in queries for part in query.parts()]))
    found: list[LinkedSentence] = []
    for query in queries:
        assert isinstance(query, TranslationQuery)
        for core, sentence in zip(query.segments.cores, query.sentences, strict=True):
            hypothesis: Hypothesis = next(outputs)[0]
            target, target_tokens = model.target_spans(hypothesis)
            links = known_links(core, target)
            if links and len(found) < _MOST_SENTENCES:
                source_tokens = model.source_spans(core, len(sentence.tokens), sentence.prefix)
                found.append(
                    LinkedSentence(
                        source=core,
                        source_ids=sentence.tokens,
                        source_tokens=source_tokens,
                        target=target,
                        target_ids=hypothesis.tokens,
                        target_tokens=target_tokens,
                        links=links,
                    )
                )
    return found


class _ForcedDecoder:
    """Computes the attention of all heads while given targets are read."""

    def __init__(self, bundle: Path, config: TranslationConfig) -> None:
        manifest = load_manifest(bundle)
        encode, step = (manifest.graphs[name].onnx for name in ("encode", "step"))
        assert encode is not None
        assert step is not None
        self._config = config
        with tempfile.TemporaryDirectory(dir=bundle.parent, prefix=".alignment-") as temporary:
            directory = Path(temporary) / "copy"
            shutil.copytree(bundle, directory)
            model = onnx.load(directory / step, load_external_data=False)
            self._layers = num_cross_attentions(model)
            onnx.save_model(with_all_attention(model), directory / step)
            self._encode, self._step = (self._session(directory / file) for file in (encode, step))
        self._inputs = {each.name for each in self._step.get_inputs()}

    @staticmethod
    def _session(path: Path) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def attention(self, sentences: Sequence[LinkedSentence]) -> Iterator[Weights]:
        """Yield the attention of each sentence, `[L, H, T + 1, S]`; the first step reads the start token."""
        for first in range(0, len(sentences), _BATCH):
            yield from self._batch(sentences[first : first + _BATCH])

    def _batch(self, sentences: Sequence[LinkedSentence]) -> list[Weights]:
        tokens = self._config.special_tokens
        start = tokens.end if tokens.start is None else tokens.start
        lengths = np.array([len(each.source_ids) + 1 for each in sentences])
        source = _padded([[*each.source_ids, tokens.end] for each in sentences], tokens.end)
        target = _padded([[start, *each.target_ids] for each in sentences], tokens.end)
        names = [each.name for each in self._encode.get_outputs()]
        given = {"source": source, "source_lengths": lengths}
        memory = dict(zip(names, self._encode.run(names, given), strict=True))
        _, heads, _, size = memory["memory_keys_0"].shape
        count, steps = target.shape
        cached = [name for name in names if name.startswith(("memory_keys_", "memory_values_"))]
        caches = {name.removeprefix("memory_"): np.zeros((count, heads, steps, size), np.float32) for name in cached}
        wanted = [f"attention_{layer}" for layer in range(self._layers)]
        found = []
        for step in range(steps):
            inputs = {
                "tokens": target[:, step : step + 1],
                "positions": np.full(count, step),
                "slots": np.full((count, 1), step),
                "visible": np.broadcast_to(np.arange(steps) <= step, (count, 1, steps)),
                "source_lengths": lengths,
                "k": np.array(1),
                "slot_positions": np.broadcast_to(np.arange(steps), (count, steps)),
                **caches,
                **memory,
            }
            inputs = {name: value for name, value in inputs.items() if name in self._inputs}
            outputs = self._step.run([*wanted, *(f"new_{name}" for name in caches)], inputs)
            found.append(np.stack(outputs[: len(wanted)], axis=1)[:, :, :, 0])
            caches = dict(zip(caches, outputs[len(wanted) :], strict=True))
        attention = np.stack(found, axis=3)
        return [attention[row, :, :, : len(each.target_ids) + 1, : lengths[row]] for row, each in enumerate(sentences)]


def _padded(rows: Sequence[Sequence[int]], fill: int) -> NDArray[np.int64]:
    padded = np.full((len(rows), max(map(len, rows))), fill)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def chosen_heads(
    bundle: Path, sentences: Sequence[LinkedSentence], guided: tuple[int, int] | None = None
) -> AlignmentHeads | None:
    """Return the heads whose mean links words right: the most heads that are 0.01 from the best ones, or closer.

    A head that was trained to align words, `guided` (layer and number), is taken whatever the others do: known links
    are of names and numbers, and it was trained for all words. None with fewer than 20 known links, or with `guided`
    without any.
    """
    words = sum(len(each.links) for each in sentences)
    if words < (_FEWEST if guided is None else 1):
        return None
    config: Any = load_manifest(bundle).config
    attention = list(_ForcedDecoder(bundle, config).attention(sentences))
    if guided is not None:
        value = _right(sentences, attention, (guided,), _WRITING)
        return AlignmentHeads(heads=(guided,), offset=_WRITING, accuracy=round(value / words, 4), words=words)
    layers, heads = attention[0].shape[:2]
    single = [((layer, head),) for layer in range(layers) for head in range(heads)]
    right: dict[tuple[Literal[0, 1], tuple[tuple[int, int], ...]], float] = {}
    offsets: tuple[Literal[0, 1], ...] = (1, 0)
    for offset in offsets:
        alone = {each: _right(sentences, attention, each, offset) for each in single}
        ranked = sorted(single, key=alone.__getitem__, reverse=True)
        several = [sum(ranked[:count], ()) for count in range(2, min(_MOST_HEADS, len(ranked)) + 1)]
        right |= {(offset, each): value for each, value in alone.items()}
        right |= {(offset, each): _right(sentences, attention, each, offset) for each in several}
    enough = max(right.values()) - _TOLERANCE * words
    value, _, (offset, chosen) = max(
        ((value, len(key[1]), key) for key, value in right.items() if value >= enough),
        key=lambda each: (each[1], each[0]),
    )
    return AlignmentHeads(heads=chosen, offset=offset, accuracy=round(value / words, 4), words=words)


def _right(
    sentences: Sequence[LinkedSentence], attention: Sequence[Weights], heads: Sequence[tuple[int, int]], offset: int
) -> float:
    """Return how many words with known links have the largest weight at the right word."""
    count = 0
    for sentence, weights in zip(sentences, attention, strict=True):
        mean = np.mean([weights[head] for head in heads], axis=0)
        by_word = word_weights(
            strongest(mean),
            sentence.source_tokens,
            words_of(sentence.source),
            sentence.target_tokens,
            words_of(sentence.target),
            offset,
        )
        count += sum(int(by_word[target].argmax()) == source for target, source in sentence.links.items())
    return count


def add_alignment(bundle: Path, texts: Sequence[str]) -> AlignmentHeads | None:
    """Add the attention output to the decoder graphs of a bundle, by the heads that are best on texts; return these.

    Weights and tokenizer stay as they are. None, and nothing changes, where too few links are known. Raises
    `ValueError` for a bundle of another task, with TorchScript, or that has the output.
    """
    manifest = load_manifest(bundle)
    if not isinstance(manifest.config, TranslationConfig):
        raise ValueError(f"{bundle} holds no translation model but a {manifest.task} model")
    step = manifest.graphs["step"]
    if step.torchscript is not None:
        raise ValueError(f"{bundle} has TorchScript graphs, to which no output can be added")
    if manifest.config.alignment is not None:
        raise ValueError(f"{bundle} has an attention output")
    heads = chosen_heads(bundle, sentences_with_links(load_bundle(bundle), texts))
    if heads is None:
        return None
    content = manifest.model_dump(mode="json")
    content["graphs"]["step"] = contract_with_attention(step).model_dump(mode="json")
    content["config"]["alignment"] = heads.model_dump(mode="json")
    with tempfile.TemporaryDirectory(dir=bundle.parent, prefix=".alignment-") as temporary:
        directory = Path(temporary) / bundle.name
        shutil.copytree(bundle, directory)
        _add_outputs(directory, step.files(), heads)
        content["files"] |= {file: sha256_of(directory / file) for file in step.files()}
        changed = parse_manifest(content)
        (directory / MANIFEST).write_text(changed.model_dump_json(indent=2) + "\n", encoding="utf-8")
        place(directory, bundle)
    return heads


def extend_draft(draft: Draft, texts: Sequence[str], guided: tuple[int, int] | None = None) -> None:
    """Add the attention output to a draft of a translation bundle, by the heads that are best on texts.

    `guided` are layer and number of a head that was trained to align words, see `chosen_heads`.
    Nothing changes where too few links are known, or where the draft has TorchScript graphs, which lack the output.
    """
    step = draft.graphs["step"]
    if step.contract.torchscript is not None:
        return
    draft.report("choosing the attention heads that align words")
    sentences = sentences_with_links(draft.load(), texts[:_MOST_TEXTS])
    heads = chosen_heads(draft.directory, sentences, guided)
    if heads is None:
        return
    files = draft.save_manifest().graphs["step"].files()
    _add_outputs(draft.directory, files, heads)
    draft.graphs = {**draft.graphs, "step": BundleGraph(contract_with_attention(step.contract), step.model)}
    draft.section["alignment"] = heads.model_dump(mode="json")


def _add_outputs(directory: Path, files: Iterable[str], heads: AlignmentHeads) -> None:
    for file in files:
        graph = onnx.load(directory / file, load_external_data=False)
        onnx.save_model(with_attention(graph, heads.heads), directory / file)
