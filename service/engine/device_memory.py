"""The memory of GPUs, of which each model reserves a part before it is loaded. Pure: nothing here asks a device.

A limit holds for each GPU and all models together. The arena of each session is limited to what was reserved for it, so
that the sum is not exceeded.
"""

from collections import Counter
from collections.abc import Callable, Mapping

__all__ = ["DeviceFull", "DeviceLedger", "Reservation", "gpu_of"]

_MEGABYTE = 1 << 20


def gpu_of(device: str) -> str | None:
    """Return the GPU of a device by kind and number, None for the CPU; `auto` is the first GPU."""
    kind, _, number = device.partition(":")
    return None if kind == "cpu" else f"cuda:{number or 0}"


class DeviceFull(Exception):
    """A model that does not fit in what the others have left of a GPU's memory."""


class DeviceLedger:
    """What is reserved of the memory of each GPU, by kind. Use it from one thread."""

    def __init__(
        self,
        limit: int,
        shared: Mapping[str, int],
        report: Callable[[str, str, int], object] = lambda device, kind, size: None,
    ) -> None:
        """`limit` is in bytes for each device, `shared` is what all models of one share, by kind.

        `report` is called with the device, a kind, also `limit`, and the bytes of it, whenever these have changed.
        """
        self._limit, self._shared, self._report = limit, dict(shared), report
        self._reserved: dict[str, Counter[str]] = {}

    def free(self, device: str) -> int:
        """Return the bytes that can still be reserved."""
        return self._limit - sum(self._of(device).values())

    def reserve(self, device: str, needed: Mapping[str, int]) -> "Reservation":
        """Reserve bytes by kind; raises `DeviceFull` where they do not fit."""
        reserved, wanted = self._of(device), sum(needed.values())
        if wanted > self.free(device):
            parts = ", ".join(f"{kind} {_megabytes(size)}" for kind, size in needed.items())
            taken = ", ".join(f"{kind} {_megabytes(size)}" for kind, size in sorted(reserved.items()) if size)
            raise DeviceFull(
                f"it needs {_megabytes(wanted)} MB of {device} ({parts}); {_megabytes(self.free(device))} of"
                f" {_megabytes(self._limit)} MB are free (--gpu-memory-mb), reserved are: {taken or 'none'}"
            )
        self._change(device, needed, 1)
        return Reservation(lambda: self._change(device, needed, -1))

    def _of(self, device: str) -> Counter[str]:
        if device not in self._reserved:
            self._reserved[device] = Counter(self._shared)
            self._report(device, "limit", self._limit)
            for kind, size in self._shared.items():
                self._report(device, kind, size)
        return self._reserved[device]

    def _change(self, device: str, amounts: Mapping[str, int], sign: int) -> None:
        reserved = self._of(device)
        for kind, size in amounts.items():
            reserved[kind] += sign * size
            self._report(device, kind, reserved[kind])


class Reservation:
    """Reserved memory of one device."""

    def __init__(self, release: Callable[[], object]) -> None:
        self._release: Callable[[], object] | None = release

    def release(self) -> None:
        """Give the memory back; more calls change nothing."""
        if self._release is not None:
            self._release()
            self._release = None


def _megabytes(size: int) -> str:
    """Return bytes in megabytes, rounded up."""
    return f"{-(-size // _MEGABYTE):,}"
