"""What `softserve bench` can be told."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.auth import KeyFileError, read_keys
from service.settings import BUNDLED

__all__ = ["KEY_VARIABLE", "InProcess", "Load", "UsageError"]

KEY_VARIABLE = "SOFTSERVE_BENCH_API_KEY"
"""Where a key may stand that no list of processes shows."""

_FASTEST = 100_000
_LONGEST_TIMEOUT_MS = 3_600_000
"""What a server takes in `X-Request-Timeout-Ms`."""


class UsageError(Exception):
    """What cannot be measured as it was asked for; exit status 2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InProcess:
    """Where the target is a model: medians over interleaved rounds at batch 1, 8 and 32."""

    model_dir: Path = BUNDLED
    """Directory that holds the bundles."""
    threads: int | None = None
    """Threads of one run; all cores without it."""
    rounds: int = 50
    """Repetitions of each measurement."""

    def __post_init__(self) -> None:
        _check("--rounds", self.rounds, least=1)
        _check("--threads", self.threads, least=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Where the target is the address of a server, http://... or https://...: a load test.

    Each connection sends its next request when it has the answer to the last (closed loop), or requests come at random
    times whatever becomes of those before (open loop, --rate).
    """

    seconds: float = 10.0
    """Measured time."""
    warm_up: float = 2.0
    """Seconds of the same load before that, which are not counted."""
    connections: int | None = None
    """Connections at most; 16 without it, and 1024 with --rate."""
    rate: float | None = None
    """Requests a second, of a Poisson process. Latency counts from when a request was due, sent or not."""
    model: str | None = None
    """Name or name:version of a served model; the first that reads texts without it."""
    endpoint: Literal["next-word", "score"] | None = None
    """What a language model is asked for; next-word without it."""
    texts_per_request: int = 1
    """Texts, or images, in one request."""
    file: Path | None = None
    """Texts to send in turn, one a line, UTF-8; built-in ones of 1 to 40 words without it."""
    beam_size: int | None = None
    """Of what writes texts; the server's default without it."""
    timeout_ms: int = 30_000
    """Deadline of a request, which the server is told; a second after it the client gives up."""
    api_key_file: Path | None = None
    """File whose first line that is not a comment is the key to send; SOFTSERVE_BENCH_API_KEY may hold one instead."""
    json: Path | None = None
    """File to write the result to as JSON, besides the tables."""

    def __post_init__(self) -> None:
        _check("--seconds", self.seconds, above=0)
        _check("--warm-up", self.warm_up, least=0)
        _check("--connections", self.connections, least=1)
        _check("--rate", self.rate, above=0)
        _check("--texts-per-request", self.texts_per_request, least=1)
        _check("--beam-size", self.beam_size, least=1)
        _check("--timeout-ms", self.timeout_ms, least=1)
        if self.rate is not None and self.rate > _FASTEST:
            raise UsageError(f"--rate is {_FASTEST} at most, not {self.rate:g}: one client sends some thousands")
        if self.timeout_ms > _LONGEST_TIMEOUT_MS:
            raise UsageError(f"--timeout-ms is {_LONGEST_TIMEOUT_MS} at most, not {self.timeout_ms}")

    def most_connections(self) -> int:
        """As given, or what the kind of loop needs."""
        return self.connections or (16 if self.rate is None else 1024)

    def key(self) -> str | None:
        """The key to send, if there is one. Raises `UsageError`, which does not show it."""
        if self.api_key_file is not None:
            try:
                return read_keys(self.api_key_file)[0]
            except (KeyFileError, FileNotFoundError) as error:
                raise UsageError(str(error)) from None
        key = os.environ.get(KEY_VARIABLE) or None
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(f"{KEY_VARIABLE} must be of visible ASCII characters")
        return key


def _check(flag: str, value: float | None, *, least: float = -math.inf, above: float = -math.inf) -> None:
    if value is not None and not (least <= value < math.inf and value > above):
        raise UsageError(
            f"{flag} must be {f'{least:g} or more' if above < 0 else f'more than {above:g}'}, not {value:g}"
        )
