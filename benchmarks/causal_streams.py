"""Texts that an imported causal model writes at the same time, compared with transformers on the same weights.

    .venv/bin/python -m benchmarks.causal_streams --model gpt2

Random weights of a published configuration; the prompts are random tokens, and each text goes on by its most probable
tokens. Softserve draws the next token of all texts in one batch, as the service does with the texts that are being
written, and over HTTP, where a service with default settings has a request for each text; transformers generates a
batch of prompts of one length, with eager attention and SDPA. All take turns in one run. Prints medians in tokens/s of
all texts, how many times one text's that is, and the ratio to the best of transformers.
"""

import argparse
import http.client
import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.causal_scoring import SIZES, measure, random_model
from benchmarks.server import serving
from models.tasks.causal_language_model import CausalLanguageModel
from models.tasks.language_sampling import DrawQuery

_CACHE_BYTES, _DECODING_BYTES = 64 << 20, 1 << 30
_READY = 120.0
"""Seconds within which the service must be ready."""


def over_http(port: int, prompts: Sequence[Sequence[int]], count: int, number: int) -> None:
    """Have a service write so many tokens after each prompt, in as many requests at a time.

    The second token of each prompt becomes `number`, so that it is not in the cache from the round before.
    """

    def complete(prompt: Sequence[int]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        body = {"prompt": [prompt[0], number, *prompt[2:]], "max_tokens": count, "temperature": 0}
        headers = {"Content-Type": "application/json", "X-Request-Timeout-Ms": "300000"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        written = json.load(connection.getresponse())["usage"]["completion_tokens"]
        connection.close()
        if written != count:
            raise RuntimeError(f"the service has written {written} of {count} tokens")

    with ThreadPoolExecutor(len(prompts)) as clients:
        list(clients.map(complete, prompts))


def ours(model: CausalLanguageModel, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Return the tokens that follow each prompt."""
    model.use_cache(_CACHE_BYTES)  # an empty one
    model.use_decoding_cache(_DECODING_BYTES)
    read: list[tuple[int, ...]] = [tuple(prompt) for prompt in prompts]
    after: list[object] = [None] * len(prompts)
    written: list[list[int]] = [[] for _ in prompts]
    for step in range(count):
        goes_on = step + 1 < count
        queries = [DrawQuery(tokens, before, goes_on=goes_on) for tokens, before in zip(read, after, strict=True)]
        drawn = model.run_draws(queries)
        read, after = [(each.token,) for each in drawn], [each.prefix for each in drawn]
        for text, each in zip(written, drawn, strict=True):
            text.append(each.token)
    return written


@torch.inference_mode()
def theirs(model: Any, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Return the same by transformers."""
    tokens = torch.tensor(prompts)
    found = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    texts: list[list[int]] = found[:, tokens.shape[1] :].tolist()
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="gpt2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--prompt", type=int, default=50, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=32, help="tokens that each text goes on by")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    generator = np.random.default_rng(0)
    vocabulary, count = SIZES[arguments.model][1]["vocab_size"], arguments.tokens
    with tempfile.TemporaryDirectory() as folder, ExitStack() as services:
        directory, model, start = random_model(Path(folder), arguments.model, arguments.threads)
        flags = "--threads", str(arguments.threads)
        served = serving(directory.parent / "bundles", arguments.model, *flags, seconds=_READY)
        port, _ = services.enter_context(served)
        references = {
            f"transformers {attention}": transformers.AutoModelForCausalLM.from_pretrained(
                directory, attn_implementation=attention, dtype=torch.float32
            ).train(False)
            for attention in ("eager", "sdpa")
        }
        print("| texts at a time | | tokens/s | x one text | x the best of transformers |")
        print("| --- | --- | --- | --- | --- |")
        single: dict[str, float] = {}
        numbers = itertools.count(3)
        for texts in arguments.texts:
            rows = generator.integers(3, vocabulary, (texts, arguments.prompt)).tolist()
            prompts = [[start, *row] for row in rows]
            equal = [
                a == b
                for one, other in zip(
                    ours(model, prompts, count), theirs(references["transformers sdpa"], prompts, count), strict=True
                )
                for a, b in zip(one, other, strict=True)
            ]
            sides: dict[str, Callable[[], object]] = {
                "Softserve": lambda: ours(model, prompts, count),  # noqa: B023
                "Softserve over HTTP": lambda: over_http(port, prompts, count, next(numbers)),  # noqa: B023
            }
            for name, side in references.items():
                sides[name] = lambda side=side: theirs(side, prompts, count)  # type: ignore[misc]  # noqa: B023
            times = measure(sides, arguments.rounds)
            best = min(times[name] for name in references)
            for name, value in times.items():
                speed = texts * count / value
                single.setdefault(name, speed / texts)
                print(f"| {texts} | {name} | {speed:.1f} | {speed / single[name]:.2f} | {best / value:.2f} |")
            print(f"  {sum(equal)} of {len(equal)} tokens are those of transformers")


if __name__ == "__main__":
    main()
