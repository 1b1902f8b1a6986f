"""The headers of the cache of results: `Cache-Control` of requests, and `Cache-Status` of answers."""

from service.engine.caller import CacheUse

__all__ = ["cache_status", "forbids_storing"]


def forbids_storing(cache_control: bytes) -> bool:
    """Return whether a request has the directive `no-store` (RFC 9111, section 5.2.1.5)."""
    return any(each.strip().lower() == b"no-store" for each in cache_control.split(b","))


def cache_status(use: CacheUse) -> bytes:
    """Return the value of `Cache-Status` (RFC 9211): a hit where every input had a result in the cache.

    It is collapsed where others were computing all that had none.
    """
    if use.hits == use.inputs:
        return b"softserve; hit"
    collapsed = "" if use.misses else "; collapsed"
    detail = f'; detail="{use.hits} of {use.inputs} inputs"' if use.hits else ""
    return f"softserve; fwd=miss{collapsed}{detail}".encode()
