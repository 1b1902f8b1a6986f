"""The former name of `service.http.app`; gone in the next version."""

import warnings

from service.http.app import create_app

__all__ = ["create_app"]

warnings.warn("service.app is service.http.app now", DeprecationWarning, stacklevel=2)
