"""Timers that end the process although native code keeps the interpreter's lock (Linux): no code of Python has to run.

That of `exit_after` ends it at once. That of a `NativeTimer` can be restarted, and does not end it because of a pause.
When the latter expires, the kernel sends a signal, and the C function `alarm` is its handler. As
a handler is called with the number of its signal, it sets an alarm after so many seconds, counted from the time at
which the process runs again. The handler of that second signal writes the stacks of all threads and calls `_exit`.
"""

import ctypes
import faulthandler
import signal
import sys

__all__ = ["EXIT_STATUS", "EXIT_STATUS_AFTER", "NativeTimer", "exit_after"]

_EXPIRED = 16
"""SIGSTKFLT, which nothing sends; its number is the time between the two signals, in seconds."""
EXIT_STATUS = int(signal.SIGALRM)
"""The exit status of the process, for `_exit` is called with the number of its signal."""
EXIT_STATUS_AFTER = int(signal.SIGVTALRM)
"""The exit status of a process that `exit_after` has ended."""
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


class _Timer:
    """A timer of the kernel that sends a signal; without effect where the C library has no such timers."""

    def __init__(self, number: int, functions: dict[int, str]) -> None:
        """Create a timer that sends the signal `number`; `functions` of the C library handle signals."""
        self._timer = ctypes.c_void_p()
        self.available = sys.platform == "linux" and self._create(number, functions)

    def _create(self, number: int, functions: dict[int, str]) -> bool:
        """Install the handlers and create the timer; return whether the C library has all functions."""
        self.libc = libc = ctypes.CDLL(None)
        try:
            libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
            create, _ = libc.timer_create, libc.timer_settime
            handlers = {handled: getattr(libc, name) for handled, name in functions.items()}
        except AttributeError:
            return False
        for handled, function in handlers.items():
            libc.signal(int(handled), ctypes.cast(function, ctypes.c_void_p))
        event = _Event(None, number, _SIGNAL_NOTIFICATION)
        return bool(create(_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)) == 0)

    def set(self, seconds: float) -> None:
        """Let the timer expire after so many seconds; 0 stops it."""
        if self.available:
            times = _Times(0, 0, int(seconds), int(seconds % 1 * 1e9))
            self.libc.timer_settime(self._timer, 0, ctypes.byref(times), None)


class NativeTimer:
    """Ends the process some seconds after a restart, unless it is restarted or stopped; on Linux only."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer = _Timer(_EXPIRED, {_EXPIRED: "alarm", signal.SIGALRM: "_exit"})
        if self._timer.available:
            faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)

    def restart(self) -> None:
        """Begin again."""
        self._set(self._seconds)

    def stop(self) -> None:
        """End the timer."""
        self._set(0.0)

    def _set(self, seconds: float) -> None:
        self._timer.set(seconds)
        if self._timer.available:
            self._timer.libc.alarm(0)


def exit_after(seconds: float) -> None:
    """End the process after so many seconds with `EXIT_STATUS_AFTER`, unless it has ended before; on Linux only."""
    _Timer(signal.SIGVTALRM, {signal.SIGVTALRM: "_exit"}).set(seconds)
