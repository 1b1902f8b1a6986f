"""Former names of modules of `service.http`, for packages that have routers; gone in the next version."""

import importlib
import sys
import warnings

for _name in ("answer", "endpoint", "requests", "route"):
    sys.modules[f"{__name__}.{_name}"] = importlib.import_module(f"service.http.{_name}")
warnings.warn("service.api is service.http now", DeprecationWarning, stacklevel=2)
