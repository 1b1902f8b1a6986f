"""What the configured models share is loaded at the start of the process, while it imports the server."""

import contextlib
import threading

from models import ModelStore
from models.tasks.registry import TASKS
from service.settings import Settings

__all__ = ["preload"]


def preload(settings: Settings) -> None:
    """Start to load, on a thread, what the classes of the configured models share; errors show when models load."""
    threading.Thread(target=_preload, args=(settings,), name="softserve-preload", daemon=True).start()


def _preload(settings: Settings) -> None:
    with contextlib.suppress(Exception):
        store = ModelStore(*settings.model_dirs)
        for task in {store.manifest(name).task for name in settings.models or store.versions()}:
            TASKS[task].load_shared()
