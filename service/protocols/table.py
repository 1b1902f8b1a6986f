"""The table of protocols: a line for each."""

from collections.abc import Mapping

__all__ = ["DEFAULT_PROTOCOLS", "EXTRAS", "NATIVE", "PROTOCOLS", "protocol_names"]

NATIVE = "native"
"""The name of the service's own endpoints, `/v1/...`."""

PROTOCOLS: Mapping[str, str] = {
    "oip": "service.protocols.open_inference",
    "openai": "service.protocols.openai",
    "deepl": "service.protocols.deepl",
    "libretranslate": "service.protocols.libretranslate",
    "tei": "service.protocols.tei",
    "hf": "service.protocols.huggingface",
    "mcp": "service.protocols.mcp",
}
"""The package of each protocol, which has a `PROTOCOL`; it is imported where the protocol is served."""


EXTRAS = frozenset({"mcp"})
"""Protocols that need the extra of their name."""
DEFAULT_PROTOCOLS = ",".join((NATIVE, *(name for name in PROTOCOLS if name not in EXTRAS)))


def protocol_names(names: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list; raises `ValueError` for one that is unknown."""
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    known = (NATIVE, *PROTOCOLS)
    if unknown := [name for name in found if name not in known]:
        raise ValueError(f"unknown protocol {unknown[0]!r}; known protocols: {', '.join(known)}")
    return found
