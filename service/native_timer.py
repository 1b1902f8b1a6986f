"""A timer that ends the process although native code keeps the interpreter's lock, and not because of a pause (Linux).

When it expires, the kernel sends a signal, and the C function `alarm` is its handler: no code of Python has to run. As
a handler is called with the number of its signal, it sets an alarm after so many seconds, counted from the time at
which the process runs again. The handler of that second signal writes the stacks of all threads and calls `_exit`.
"""

import ctypes
import faulthandler
import signal
import sys

__all__ = ["EXIT_STATUS", "NativeTimer"]

_EXPIRED = 16
"""SIGSTKFLT, which nothing sends; its number is the time between the two signals, in seconds."""
EXIT_STATUS = int(signal.SIGALRM)
"""The exit status of the process, for `_exit` is called with the number of its signal."""
_SIGNAL_NOTIFICATION = 0
"""SIGEV_SIGNAL of <signal.h>."""
_MONOTONIC = 1
"""CLOCK_MONOTONIC of <time.h>."""


class _Event(ctypes.Structure):
    """`struct sigevent`, which has 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_byte * 48),
    )


class _Times(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class NativeTimer:
    """Ends the process some seconds after a restart, unless it is restarted or stopped; on Linux only."""

    def __init__(self, seconds: float) -> None:
        self._times = _Times(0, 0, int(seconds), int(seconds % 1 * 1e9))
        self._timer = ctypes.c_void_p()
        self._available = sys.platform == "linux" and self._create()

    def _create(self) -> bool:
        """Install the handlers and create the timer; return whether the C library has all functions."""
        self._libc = libc = ctypes.CDLL(None)
        try:
            libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
            create, _ = libc.timer_create, libc.timer_settime
            handlers = {_EXPIRED: libc.alarm, signal.SIGALRM: libc._exit}
        except AttributeError:
            return False
        for number, function in handlers.items():
            libc.signal(int(number), ctypes.cast(function, ctypes.c_void_p))
        faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)
        event = _Event(None, _EXPIRED, _SIGNAL_NOTIFICATION)
        return bool(create(_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)) == 0)

    def restart(self) -> None:
        """Begin again."""
        self._set(self._times)

    def stop(self) -> None:
        """End the timer."""
        self._set(_Times())

    def _set(self, times: _Times) -> None:
        if self._available:
            self._libc.timer_settime(self._timer, 0, ctypes.byref(times), None)
            self._libc.alarm(0)
