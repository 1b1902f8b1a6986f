"""The options of a load test."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.http.key_file import KeyFileError, read_keys

__all__ = ["KEY_VARIABLE", "LoadOptions", "UsageError"]

KEY_VARIABLE = "SOFTSERVE_BENCH_API_KEY"
"""Environment variable of the API key, which process lists do not show."""

_MAX_RATE = 100_000
"""Requests/s; one client sends some thousands."""
_MAX_TIMEOUT_MS = 3_600_000
"""The limit of servers for `X-Request-Timeout-Ms`."""


class UsageError(Exception):
    """A load test that cannot run as it was asked for; the message names the option."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadOptions:
    """Options of a load test.

    In the closed loop each connection sends its next request after the response to the last; in the open loop (--rate)
    requests are sent at random times, independently of responses.
    """

    seconds: float = 10.0
    """Duration of the measurement, in seconds."""
    warm_up: float = 2.0
    """Seconds of the same load before the measurement, which are not counted."""
    connections: int | None = None
    """Largest number of connections; by default 16, and 1024 with --rate."""
    rate: float | None = None
    """Requests/s of a Poisson process. Latency counts from when a request was due, not from when it was sent."""
    model: str | None = None
    """Name or name:version of a served model; by default the first that reads texts."""
    endpoint: Literal["classify", "generate", "next-word", "score", "translate"] | None = None
    """Operation to request; by default the model's first, next-word for language models."""
    texts_per_request: int = 1
    """Texts, or images, per request."""
    file: Path | None = None
    """UTF-8 file of texts to send in turn, one per line; by default built-in texts of 1 to 40 words."""
    beam_size: int | None = None
    """Beam size of translation and text generation; by default the server's."""
    timeout_ms: int = 30_000
    """Deadline of a request, in milliseconds, which is sent to the server; the client waits one second longer."""
    api_key_file: Path | None = None
    """File whose first line that is not a comment is the API key; SOFTSERVE_BENCH_API_KEY may hold it instead."""
    json: Path | None = None
    """File to write the results to as JSON, in addition to the tables."""

    def __post_init__(self) -> None:
        _check("--seconds", self.seconds, above=0)
        _check("--warm-up", self.warm_up, least=0)
        _check("--connections", self.connections, least=1)
        _check("--rate", self.rate, above=0, most=_MAX_RATE)
        _check("--texts-per-request", self.texts_per_request, least=1)
        _check("--beam-size", self.beam_size, least=1)
        _check("--timeout-ms", self.timeout_ms, least=1, most=_MAX_TIMEOUT_MS)

    def most_connections(self) -> int:
        """Return the largest number of connections: the option, or the default of the kind of loop."""
        return self.connections or (16 if self.rate is None else 1024)

    def key(self) -> str | None:
        """Return the API key, if any; raises `UsageError`, which does not show it."""
        if self.api_key_file is not None:
            try:
                return read_keys(self.api_key_file)[0]
            except (KeyFileError, FileNotFoundError) as error:
                raise UsageError(str(error)) from None
        key = os.environ.get(KEY_VARIABLE) or None
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(f"{KEY_VARIABLE} must consist of visible ASCII characters")
        return key


def _check(
    flag: str, value: float | None, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> None:
    if value is None:
        return
    if not (least <= value < math.inf and value > above):
        bound = f"{least:g} or more" if above < 0 else f"more than {above:g}"
        raise UsageError(f"{flag} must be {bound}, not {value:g}")
    if value > most:
        raise UsageError(f"{flag} is {most} at most, not {value:g}")
