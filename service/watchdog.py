"""End a process whose event loop hangs, so that a supervisor or container engine starts it again."""

import asyncio
import faulthandler

__all__ = ["exit_on_hang"]


async def exit_on_hang(timeout: float) -> None:
    """Exit with status 1 where the event loop does not run for `timeout` seconds; runs until it is cancelled.

    The stack of every thread is written to standard error first. The timer is a thread of faulthandler, which does not
    need the interpreter's lock: a process that hangs in native code ends as well.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(timeout, exit=True)
            await asyncio.sleep(min(1.0, timeout / 4))
    finally:
        faulthandler.cancel_dump_traceback_later()
