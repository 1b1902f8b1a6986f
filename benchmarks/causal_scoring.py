"""Scores of texts by an imported causal model, compared with transformers on the same weights.

    .venv/bin/python -m benchmarks.causal_scoring --model gpt2

Random weights of a published configuration; the texts are random tokens. Both sides take turns in one run, each at its
best setting: transformers tries eager attention and SDPA and several batch sizes, sorted by length. For continuations
of one context it reads the context once and keeps its keys and values; a last row is that of a client that sends the
context with each. Prints medians in tokens/s, their ratio, and the largest difference of a text's log-probability.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from models.store import load_bundle
from models.tasks.causal_language_model import CausalLanguageModel
from tests.support.causal_directory import write_causal
from training.bundling.bundle import BundleSettings
from training.importing.causal import CausalImporter
from training.importing.importer import ImportOptions, write_imported
from training.importing.samples import Samples
from training.importing.source import open_source

SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": 3072, "n_positions": 1024},
    ),
    "smollm": (
        "LlamaForCausalLM",
        {
            "vocab_size": 49_152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "head_dim": 64,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    ),
}


class Reference:
    """Scoring with transformers: log-probabilities of all tokens of texts but the first."""

    def __init__(self, directory: Path, attention: str, batch: int) -> None:
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, attn_implementation=attention, dtype=torch.float32
        )
        self.model.train(False)
        self.batch = batch

    @torch.inference_mode()
    def score(self, texts: Sequence[Sequence[int]]) -> list[float]:
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        found = [0.0] * len(texts)
        for first in range(0, len(order), self.batch):
            rows = order[first : first + self.batch]
            longest = max(len(texts[row]) for row in rows)
            tokens = torch.tensor([[*texts[row], *[0] * (longest - len(texts[row]))] for row in rows])
            mask = torch.tensor([[1] * len(texts[row]) + [0] * (longest - len(texts[row])) for row in rows])
            logits = self.model(tokens, attention_mask=mask, use_cache=False).logits[:, :-1]
            values = _chosen(logits, tokens[:, 1:])
            for row, value in zip(rows, values, strict=True):
                found[row] = float(value[: len(texts[row]) - 1].sum())
        return found

    @torch.inference_mode()
    def continuations(self, context: Sequence[int], ends: Sequence[Sequence[int]]) -> list[float]:
        """Return the log-probability of each end; all have the same length. The context is read once."""
        read = self.model(torch.tensor([context]), use_cache=True)
        first = read.logits[:, -1:]
        found = []
        for begin in range(0, len(ends), self.batch):
            tokens = torch.tensor(ends[begin : begin + self.batch])
            cache = transformers.DynamicCache()
            for layer, (keys, values) in enumerate(_layers(read.past_key_values)):
                size = len(tokens), -1, -1, -1
                cache.update(keys.expand(size), values.expand(size), layer)
            logits = self.model(tokens[:, :-1], past_key_values=cache).logits
            logits = torch.cat([first.expand(len(tokens), -1, -1), logits], dim=1)
            found += _chosen(logits, tokens).sum(1).tolist()
        return found


def random_model(folder: Path, name: str, threads: int) -> tuple[Path, CausalLanguageModel, int]:
    """Write and import a model of `SIZES` with random weights; return its directory, the model and its start token."""
    architecture, sizes = SIZES[name]
    directory = write_causal(folder / name, architecture, noise=0.0, **sizes)
    importer = CausalImporter(open_source(str(directory)), ImportOptions(samples=Samples(("It rains.",), "")))
    settings = BundleSettings(name=name, version=1, description="Random weights", licence="MIT")
    model = load_bundle(write_imported(importer, settings, folder / "bundles").path, threads=threads)
    assert isinstance(model, CausalLanguageModel)
    start = model.config.special_tokens.start
    assert start is not None
    return directory, model, start


def _layers(cache: Any) -> list[tuple[Tensor, Tensor]]:
    return [(each.keys, each.values) for each in cache.layers]


def _chosen(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.gather(2, targets[..., None])[..., 0] - logits.logsumexp(-1)


def ours(model: CausalLanguageModel, texts: Sequence[Sequence[int]]) -> list[float]:
    queries = [model.score_token_query(text) for text in texts]
    return [each.log_probability for each in model.run_score(queries)]


def measure(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median time of each side in seconds; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for name, run in sides.items():
        run()
        del name
    for _ in range(rounds):
        for name, run in sides.items():
            begun = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="gpt2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--continuations", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    generator = np.random.default_rng(0)
    vocabulary = SIZES[arguments.model][1]["vocab_size"]
    with tempfile.TemporaryDirectory() as folder:
        directory, model, start = random_model(Path(folder), arguments.model, arguments.threads)
        references = {
            f"transformers {attention} {batch}": Reference(directory, attention, batch)
            for attention in ("eager", "sdpa")
            for batch in (1, 8)
        }

        texts = [
            generator.integers(3, vocabulary, int(count)).tolist()
            for count in generator.integers(50, 201, arguments.texts)
        ]
        tokens = sum(map(len, texts))
        sides: dict[str, Callable[[], object]] = {"softserve": lambda: ours(model, texts)}
        for name, side in references.items():
            sides[name] = lambda side=side: side.score([[start, *text] for text in texts])  # type: ignore[misc]
        found, wanted = ours(model, texts), references["transformers sdpa 8"].score([[start, *text] for text in texts])
        print(f"{arguments.model}: {arguments.texts} texts, {tokens} tokens")
        report(measure(sides, arguments.rounds), tokens, found, wanted)

        context, ends = (
            generator.integers(3, vocabulary, 200).tolist(),
            generator.integers(3, vocabulary, (arguments.continuations, 5)).tolist(),
        )
        whole = [context + end for end in ends]
        of_context = ours(model, [context])[0]
        found = [value - of_context for value in ours(model, whole)]
        wanted = references["transformers sdpa 8"].continuations([start, *context], ends)
        sides = {"softserve": lambda: ours(model, whole)}
        for attention in ("eager", "sdpa"):
            for batch in (8, 32):
                side = references[f"transformers {attention} 8"]
                sides[f"transformers {attention} {batch}, context read once"] = (
                    lambda side=side, batch=batch: _with_batch(side, batch).continuations([start, *context], ends)  # type: ignore[misc]
                )
        sides["transformers sdpa 8, each with the context"] = lambda: _with_batch(
            references["transformers sdpa 8"], 8
        ).score([[start, *text] for text in whole])
        print(f"{arguments.model}: {len(ends)} continuations of 5 tokens of one context of 200")
        report(measure(sides, arguments.rounds), 5 * len(ends), found, wanted)


def _with_batch(side: Reference, batch: int) -> Reference:
    side.batch = batch
    return side


def report(times: dict[str, float], tokens: int, found: Sequence[float], wanted: Sequence[float]) -> None:
    best = min(value for name, value in times.items() if name != "softserve")
    for name, value in times.items():
        print(f"  {name:45} {tokens / value:10.0f} tokens/s  {best / value:6.2f} x the best of transformers")
    print(
        f"  largest difference of a log-probability {max(abs(a - b) for a, b in zip(found, wanted, strict=True)):.2e}"
    )


if __name__ == "__main__":
    main()
