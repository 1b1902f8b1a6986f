"""Compare the throughput of concurrent clients of `POST /v1/translate` with the library in batches of 32.

    python -m benchmarks.translation_service --data-dir data

Server and library have a process each, with the same threads, and take turns in one run; the client is a third process
and shares the machine with the server. Every client sends one sentence at a time over its own connection.
"""

import asyncio
import os
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnxruntime
import tyro

from benchmarks.load.client import Client
from benchmarks.server import post_json, serving
from models import ModelStore, Translator
from service.settings import BUNDLED
from training.data.corpora import get_corpus


def main(
    data_dir: Path = Path("data"),
    model_dir: Path = BUNDLED,
    model: str = "de-en",
    corpus: str = "tatoeba-de-en",
    sentences: int = 512,
    clients: int = 32,
    beam_size: int = 5,
    rounds: int = 5,
) -> None:
    """Print medians over rounds of sentences/s, and the ratio.

    Args:
        data_dir: Directory that holds the corpora.
        model_dir: Directory that holds <name>/<version>/ bundles.
        model: Name of a translation model.
        corpus: Corpus of the test sentences.
        sentences: Sentences per round, spread evenly over the split.
        clients: Concurrent connections, and batch size of the library.
        beam_size: Beam size of every translation.
        rounds: Rounds, after one to warm up.
    """
    translator = ModelStore(model_dir).load(model)
    assert isinstance(translator, Translator)
    texts = [record[0] for record in get_corpus(corpus).records("test", data_dir)]
    texts = texts[:: max(1, len(texts) // sentences)][:sentences]
    groups = [texts[first : first + clients] for first in range(0, len(texts), clients)]
    times: dict[str, list[float]] = {"library, sorted": [], "library, arrival": [], "HTTP": []}
    with serving(model_dir, model) as (port, _):
        for number in range(rounds + 1):
            results = {}
            for name in times:
                started = time.perf_counter()
                if name == "HTTP":
                    results[name] = asyncio.run(_send(texts, port, clients, beam_size))
                else:
                    batches = [texts] if name == "library, sorted" else groups
                    results[name] = [text for batch in batches for text in _translate(translator, batch, beam_size)]
                if number:
                    times[name].append(time.perf_counter() - started)
            assert len({tuple(found) for found in results.values()}) == 1, "the sides translate differently"
    print(
        f"{model}, {sentences} sentences, beam {beam_size}, {clients} clients; {platform.machine()}, "
        f"{os.cpu_count()} cores, onnxruntime {onnxruntime.__version__}"
    )
    base = statistics.median(times["HTTP"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:<18} {sentences / median:7.1f} sentences/s   HTTP / this {median / base:5.2f}")


def _translate(translator: Translator, texts: Sequence[str], beam_size: int) -> list[str]:
    return [result.translations[0].text for result in translator.translate(texts, beam_size)]


async def _send(texts: Sequence[str], port: int, clients: int, beam_size: int) -> list[str]:
    """Return translations in the order of the texts."""
    found: dict[int, str] = {}
    waiting = iter(enumerate(texts))
    async with Client(f"http://127.0.0.1:{port}", None, clients) as http:
        await asyncio.gather(*(_send_each(waiting, found, http, beam_size) for _ in range(clients)))
    return [found[index] for index in range(len(texts))]


async def _send_each(waiting: Iterator[tuple[int, str]], found: dict[int, str], http: Client, beam_size: int) -> None:
    for index, text in waiting:
        status, answer = await post_json(http, "/v1/translate", {"text": text, "beam_size": beam_size})
        if status != 200:
            raise RuntimeError(f"{status}: {answer}")
        found[index] = answer["results"][0]["translations"][0]["text"]


if __name__ == "__main__":
    tyro.cli(main)
