"""How memory of models that are gone goes back to the system.

Both functions do nothing where glibc is not the C library.
"""

import contextlib
import ctypes

__all__ = ["give_back", "use_few_arenas"]

_M_ARENA_MAX = -8
"""Of glibc's `mallopt`."""
_ARENAS = 2


def use_few_arenas() -> None:
    """Call it before threads start: each would keep an arena of its own, with holes where unloaded models were."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Returns what has been freed; without it glibc keeps much of that for later."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
