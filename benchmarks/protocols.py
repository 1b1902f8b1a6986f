"""Compare the throughput of the protocols: the same texts, the same classifier, the same server.

    python -m benchmarks.protocols
    python -m benchmarks.protocols --rounds 7 --connections 1

Every request has one text and asks for the most probable classes. The protocols take turns in each round, on one
server with all of them; the last row is `/v1/classify` of a server with nothing but the native protocol. The client
runs on the same machine, so that the processor time of the server for each request says more than the rate.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from benchmarks.load.client import Client
from benchmarks.peers.texts import make_texts
from benchmarks.server import serving
from service.settings import BUNDLED

_JSON_LENGTH = "Inference-Header-Content-Length"
_TOP_K = 5
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to ask for the classes of a text."""

    name: str
    path: str
    headers: Mapping[str, str]

    def body(self, text: str) -> bytes:
        """Return the body of a request."""
        raise NotImplementedError


class _Native(Kind):
    def body(self, text: str) -> bytes:
        return json.dumps({"text": text, "top_k": _TOP_K}).encode()


class _Tei(Kind):
    def body(self, text: str) -> bytes:
        return json.dumps({"inputs": text}).encode()


class _OpenInferenceJson(Kind):
    def body(self, text: str) -> bytes:
        return json.dumps({"inputs": [{**_INPUT, "data": [text]}]}).encode()


class _OpenInferenceBinary(Kind):
    def body(self, text: str) -> bytes:
        content = text.encode()
        size = 4 + len(content)
        given = {**_INPUT, "parameters": {"binary_data_size": size}}
        head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
        # All bodies of a kind have the same headers: the JSON part is filled up to one length.
        return head.ljust(_HEAD) + len(content).to_bytes(4, "little") + content


_INPUT = {"name": "text", "shape": [1], "datatype": "BYTES"}
_HEAD = 200
_NATIVE = _Native("native", "/v1/classify", {})
_KINDS: Sequence[Kind] = (
    _NATIVE,
    _Tei("TEI (all classes)", "/predict", {}),
    _OpenInferenceJson("Open Inference, JSON", "/v2/models/intents/infer", {}),
    _OpenInferenceBinary("Open Inference, binary", "/v2/models/intents/infer", {_JSON_LENGTH: str(_HEAD)}),
)
_ALONE = _Native("native, other protocols off", "/v1/classify", {})


def main(connections: int = 64, rounds: int = 5, seconds: float = 4.0, texts: int = 500) -> int:
    """Print the median rate of each protocol, its ratio to the native one, and the server's processor time.

    Args:
        connections: Concurrent connections.
        rounds: Rounds in which all protocols take turns.
        seconds: Seconds of load on each protocol in a round.
        texts: Number of different texts.
    """
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    load = os.getloadavg()[0]
    with (
        serving(BUNDLED, "intents") as everything,
        serving(BUNDLED, "intents", "--protocols", "native") as alone,
    ):
        for number in range(rounds + 1):  # the first warms up
            for kind in (*_KINDS, _ALONE):
                server = alone if kind is _ALONE else everything
                bodies = [kind.body(text) for text in make_texts(texts)]
                result = asyncio.run(_measure(server, kind, bodies, connections, seconds))
                print(f"round {number}: {kind.name} {result[0]:.0f} requests/s", file=sys.stderr)
                if number:
                    found[kind.name].append(result)
    table = Table("protocol", "requests/s", "of native", "processor time of the server, ms", "of native")
    native = found[_NATIVE.name]
    for name, results in found.items():
        ratios = [
            statistics.median(one[part] / other[part] for one, other in zip(results, native, strict=True))
            for part in (0, 1)
        ]
        rate, cost = (statistics.median(each[part] for each in results) for part in (0, 1))
        table.add_row(name, f"{rate:.0f}", f"{ratios[0]:.2f}", f"{1000 * cost:.2f}", f"{ratios[1]:.2f}")
    print(f"{connections} connections, medians of {rounds} rounds of {seconds:g} s, load before {load:.1f}")
    Console().print(table)
    return 0


async def _measure(
    server: tuple[int, int], kind: Kind, bodies: Sequence[bytes], connections: int, seconds: float
) -> tuple[float, float]:
    """Return the requests per second and the seconds of processor time of each; raises for a status other than 200."""
    count, (port, process) = 0, server
    async with Client(f"http://127.0.0.1:{port}", None, connections) as client:

        async def send(first: int) -> None:
            nonlocal count
            while time.perf_counter() < end:
                body = bodies[(first + count) % len(bodies)]
                response = await client.post(kind.path, body, kind.headers, _TIMEOUT)
                if response.status != 200:
                    raise RuntimeError(f"{kind.name}: {response.status} {response.content[:200]!r}")
                count += 1

        start, busy = time.perf_counter(), _processor_seconds(process)
        end = start + seconds
        await asyncio.gather(*(send(7 * first) for first in range(connections)))
        taken, busy = time.perf_counter() - start, _processor_seconds(process) - busy
    return count / taken, busy / count


def _processor_seconds(process: int) -> float:
    """Return the processor time of a process so far (Linux: proc(5))."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
