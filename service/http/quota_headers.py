"""The headers `RateLimit-Policy` and `RateLimit`: the limits of an API key, and what is left of them."""

import math
from collections.abc import Iterable

from service.engine.quotas import Quota

__all__ = ["quota_headers"]

_Header = tuple[bytes, bytes]


def quota_headers(quotas: Iterable[Quota]) -> list[_Header]:
    """Return the headers of draft-ietf-httpapi-ratelimit-headers-10, lists of structured fields (RFC 9651).

    `q` is the limit and `w` its window in seconds, `r` what is left and `t` the seconds until all of it is left again.
    """
    found = list(quotas)
    if not found:
        return []
    return [
        (b"ratelimit-policy", ", ".join(map(_policy, found)).encode()),
        (b"ratelimit", ", ".join(map(_service_limit, found)).encode()),
    ]


def _policy(quota: Quota) -> str:
    window = "" if quota.window is None else f";w={quota.window}"
    return f'"{quota.name}";q={quota.limit}{window}'


def _service_limit(quota: Quota) -> str:
    reset = "" if quota.reset is None else f";t={math.ceil(quota.reset)}"
    return f'"{quota.name}";r={quota.left}{reset}'
