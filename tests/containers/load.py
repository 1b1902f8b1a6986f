"""Requests of every kind, from several clients at once."""

import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

_TYPED = ["i", "have", "been", "looking", "for", "something", "like", "this", "for", "a", "very", "long", "time"]
_LONG = "this goes on and on and on " * 200
_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    *(("/v1/next-word", {"context": " ".join(_TYPED[:count]), "unit": "token"}) for count in range(1, len(_TYPED))),
    ("/v1/score", {"text": ["see you tomorrow", "see you"]}),
    ("/v1/classify", {"text": ["book a table for two", "what is the weather like in rome tomorrow"]}),
    ("/v1/translate", {"text": ["Guten Morgen!", "Kannst du mir sagen, wo der Bahnhof ist?"]}),
    ("/v1/score", {"text": _LONG}),  # 422: too long
    ("/v1/classify", {"text": ["book a table"] * 1025}),  # 429 or 422: more than may wait
    ("/v1/nowhere", {}),
]


_PAUSE = 0.03
"""Seconds before each request, so that the load does not use all processors."""


@dataclass
class Load:
    """Clients that ask, each request over a connection of its own, until the block ends."""

    port: int
    clients: int = 6
    answered: list[int] = field(default_factory=list)
    """Statuses."""
    lost: list[tuple[float, str]] = field(default_factory=list)
    """When requests were sent that had no answer (`time.monotonic`), and what happened instead."""

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(self.clients)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        while not self._over.is_set():
            path, body = _REQUESTS[number % len(_REQUESTS)]
            number += 1
            time.sleep(_PAUSE)
            started = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request(
                    "POST", path, json.dumps(body), {"Content-Type": "application/json", "Connection": "close"}
                )
                response = connection.getresponse()
                response.read()
                self.answered.append(response.status)
            except (OSError, http.client.HTTPException) as error:
                self.lost.append((started, repr(error)))
                time.sleep(0.05)
            finally:
                connection.close()
