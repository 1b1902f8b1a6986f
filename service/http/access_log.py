"""A line for each request: JSON, and never a text, a key or an address."""

import datetime
import json
import logging
import sys

from starlette.types import Scope

from service.http.accounts import account_of
from service.http.routes import endpoint_of

__all__ = ["AccessLog"]


class AccessLog:
    """Writes to the logger `softserve.access`, on standard output unless the logger has a handler."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("softserve.access")
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        if not self._logger.handlers:
            handler = logging.StreamHandler(sys.stdout)
            handler.setFormatter(logging.Formatter("%(message)s"))
            self._logger.addHandler(handler)

    def write(self, scope: Scope, status: int, seconds: float) -> None:
        """Log a finished request."""
        account = account_of(scope)
        entry: dict[str, object] = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "request_id": scope["state"]["request_id"],
            "method": scope["method"],
            "endpoint": endpoint_of(scope),
            "status": status,
            "seconds": round(seconds, 6),
        }
        if account.model is not None:
            entry["model"] = account.model
        if (timing := account.timing) is not None:
            entry |= {
                "batch": timing.batch,
                "tokenize_seconds": round(account.preparation_seconds, 6),
                "queue_seconds": round(timing.queue, 6),
                "inference_seconds": round(timing.inference, 6),
            }
        self._logger.info(json.dumps(entry))
