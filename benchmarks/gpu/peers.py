"""The made models by other libraries, in process: each library in a process of its own, in turns."""

import contextlib
import multiprocessing
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.in_process import batches, rate
from benchmarks.gpu.made_models import BERT, MINILM, OPUS, source_of
from benchmarks.gpu.results import Context, check_installed
from benchmarks.gpu.subjects import SUBJECTS, texts
from benchmarks.marian import converted_model, ctranslate2_side, softserve, sources_of
from benchmarks.peers.classifier import Classifier
from benchmarks.sides import Side, Work, side
from models.store import load_bundle

__all__ = ["COMPILED", "CTRANSLATE2", "OURS", "PEERS", "Peer", "row_name", "run"]

OURS, COMPILED, CTRANSLATE2 = "Softserve", "transformers, bfloat16, compiled", "CTranslate2, float16"
_WARM_UP = 2
"""Rounds that are not counted: in the first, kernels are compiled."""
_ROUNDS, _SMALL_ROUNDS = 5, 1
_ROUND_SECONDS, _MOST_PASSES = 0.2, 50
"""Time that a library computes in a round, and the largest number of times that it computes the batch in it."""
_OUTPUT_TOKENS = 24
_BEAM = 4


@dataclass(frozen=True, kw_only=True)
class Given:
    """The files and the device that the work of a peer is made of."""

    bundle: Path
    source: Path
    """The directory in Hugging Face's layout of which the bundle was made."""
    work: Path
    device: str


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A library, the models that it computes, and how its work is made in a process of its own."""

    name: str
    modules: tuple[str, ...]
    """Modules without which it is not installed."""
    models: tuple[str, ...]
    make: Callable[[Given], Work]
    in_small: bool = True
    """Whether it is part of a small run."""


def _softserve(given: Given) -> Work:
    model: Any = load_bundle(given.bundle, device=given.device)
    return lambda group: list(model.classify(group, truncate=True))


def _onnxruntime(given: Given) -> Work:
    classifier = Classifier.warm(given.bundle, 0, given.device)
    return lambda group: list(classifier.classify(group))


def _transformers(given: Given, precision: str, *, compiled: bool) -> Work:
    """Return the most probable classes by transformers with SDPA; on a CPU, `compiled` is torch's eager backend."""
    import torch
    import transformers

    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(given.source)
    model: Any = transformers.AutoModelForSequenceClassification.from_pretrained(
        given.source, dtype=getattr(torch, precision), attn_implementation="sdpa"
    )
    model = model.eval().to(given.device)
    if compiled:
        model = torch.compile(model, backend="inductor" if given.device != "cpu" else "eager")

    @torch.inference_mode()
    def work(group: Sequence[str]) -> list[Any]:
        encoded = tokenizer(list(group), padding=True, truncation=True, return_tensors="pt").to(given.device)
        best = model(**encoded).logits.float().softmax(-1).topk(5)
        return list(zip(best.values.tolist(), best.indices.tolist(), strict=True))

    return work


def _ours_translating(given: Given) -> Work:
    work = softserve(given.bundle, None, _OUTPUT_TOKENS, given.device)
    return lambda group: work(group, _BEAM)


def _ctranslate2(given: Given, precision: str) -> Work:
    """Return translations by CTranslate2, which computes in float32 on a CPU where float16 is wanted."""
    if given.device == "cpu" and precision == "float16":
        precision = "float32"
    target = given.work / f"ctranslate2-{precision}"
    if not (target / "model.bin").exists():
        shutil.rmtree(target, ignore_errors=True)
        converted_model(given.source, target, precision)
    work = ctranslate2_side(target, given.source, precision, None, _OUTPUT_TOKENS, given.device)
    return lambda group: work(group, _BEAM)


def _float16(given: Given) -> Work:
    return _transformers(given, "float16", compiled=False)


def _compiled_float16(given: Given) -> Work:
    return _transformers(given, "float16", compiled=True)


def _compiled_bfloat16(given: Given) -> Work:
    return _transformers(given, "bfloat16", compiled=True)


def _ctranslate2_float16(given: Given) -> Work:
    return _ctranslate2(given, "float16")


def _ctranslate2_int8(given: Given) -> Work:
    return _ctranslate2(given, "int8")


_CLASSIFIERS = (BERT, MINILM)
_TRANSFORMERS = ("torch", "transformers")
PEERS = (
    Peer(name=OURS, modules=(), models=_CLASSIFIERS, make=_softserve),
    Peer(name="onnxruntime, batches as given", modules=("onnxruntime",), models=_CLASSIFIERS, make=_onnxruntime),
    Peer(name="transformers, float16", modules=_TRANSFORMERS, models=_CLASSIFIERS, make=_float16),
    Peer(
        name="transformers, float16, compiled",
        modules=_TRANSFORMERS,
        models=_CLASSIFIERS,
        make=_compiled_float16,
        in_small=False,
    ),
    Peer(name=COMPILED, modules=_TRANSFORMERS, models=_CLASSIFIERS, make=_compiled_bfloat16),
    Peer(name=OURS, modules=(), models=(OPUS,), make=_ours_translating),
    Peer(name=CTRANSLATE2, modules=("ctranslate2",), models=(OPUS,), make=_ctranslate2_float16),
    Peer(name="CTranslate2, int8", modules=("ctranslate2",), models=(OPUS,), make=_ctranslate2_int8),
)
"""All libraries; those that are servers are in `benchmarks.gpu.peer_servers`."""


def row_name(model: str, batch: int, peer: str) -> str:
    """Return the name of a row."""
    return f"{model}, batch {batch}, {peer}"


def run(context: Context) -> None:
    """Write a row of each model, batch size and library."""
    multiprocessing.get_context("forkserver").set_forkserver_preload([*_TRANSFORMERS, "benchmarks.gpu.peers"])
    for name in (*_CLASSIFIERS, OPUS):
        subject = next(each for each in SUBJECTS if each.name == name)
        if subject.in_small or not context.small:
            chosen = [peer for peer in PEERS if name in peer.models]
            _compare(context, name, [peer for peer in chosen if peer.in_small or not context.small])


def _compare(context: Context, name: str, peers: Sequence[Peer]) -> None:
    """Measure the libraries of a model of which a row is missing, in turns."""
    rows = {peer.name: [row_name(name, size, peer.name) for size in batches(context)] for peer in peers}
    source = source_of(context.work, name)
    with contextlib.ExitStack() as stack:
        sides: dict[str, Side] = {}
        for peer in peers:
            if all(map(context.done, rows[peer.name])):
                continue
            if time.monotonic() > context.deadline:
                context.skip(rows[peer.name])
                continue
            try:
                check_installed(peer.modules)
                started = stack.enter_context(side(peer.make, _given(context, name), method="forkserver"))
                sides[peer.name] = replace(started, rest=0.0) if context.on_gpu or context.small else started
                sides[peer.name].time([_inputs(name, source, 1)])
            except Exception as error:  # the others are compared
                sides.pop(peer.name, None)
                context.fail(rows[peer.name], error)
        for index, size in enumerate(batches(context)):
            missing = {peer: each for peer, each in sides.items() if not context.done(rows[peer][index])}
            _turns(context, {peer: rows[peer][index] for peer in missing}, missing, _inputs(name, source, size))


def _given(context: Context, name: str) -> Given:
    subject = next(each for each in SUBJECTS if each.name == name)
    return Given(
        bundle=subject.bundle(context),
        source=source_of(context.work, name),
        work=context.work,
        device=context.device,
    )


def _inputs(name: str, source: Path, size: int) -> list[Any]:
    return sources_of(source, size) if name == OPUS else texts(name, size)


def _turns(context: Context, rows: Mapping[str, str], sides: Mapping[str, Side], group: list[Any]) -> None:
    """Measure a batch by each library in each round, after two that warm up, and write the row of each."""
    times: dict[str, list[tuple[int, float]]] = {peer: [] for peer in sides}
    errors: dict[str, Exception] = {}
    passes = dict.fromkeys(sides, 1)
    for number in range(_WARM_UP + (_SMALL_ROUNDS if context.small else _ROUNDS)):
        for peer, each in sides.items():
            if peer in errors or time.monotonic() > context.deadline:
                continue
            try:
                seconds, results = each.time([group] * passes[peer])
            except Exception as error:
                errors[peer] = error
                continue
            if number >= _WARM_UP:
                times[peer].append((_units(results), seconds))
            elif not context.small:
                passes[peer] = round(min(_MOST_PASSES, max(1.0, _ROUND_SECONDS / seconds)))
    unit = "tokens" if isinstance(group[0], list) else "texts"
    for peer, row in rows.items():
        if peer in errors:
            context.fail([row], errors[peer])
        elif not times[peer]:
            context.skip([row])
        else:
            found = {name: value for name, value in rate(times[peer], unit).items() if name in ("unit", "per_second")}
            found |= {"batch_ms": 1000 * statistics.median(seconds for _, seconds in times[peer]) / passes[peer]}
            context.measure(row, partial(dict, found))


def _units(results: Sequence[Any]) -> int:
    """Return the number of texts, of translations that of their tokens."""
    return sum(len(each) if isinstance(each, list) else 1 for each in results)
