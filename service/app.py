"""The former name of `service.server.app`; gone in the next version."""

import warnings

from service.server.app import create_app

__all__ = ["create_app"]

warnings.warn("service.app is service.server.app now", DeprecationWarning, stacklevel=2)
