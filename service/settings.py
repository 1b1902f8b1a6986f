"""Settings of the service: flags of `softserve serve`, each with an environment twin `SOFTSERVE_<NAME>`."""

from pathlib import Path
from typing import Annotated, Literal, Self

import tyro
from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

import models

__all__ = ["BUNDLED", "Settings"]

BUNDLED = Path(models.__file__).parent / "bundled"
"""The models that ship with the project."""

_DEVICE = "(auto|cpu|(cuda|tensorrt)(:[0-9]{1,3})?)"


class Settings(BaseSettings):
    """How the service runs. Flags win over the environment, the environment over the defaults."""

    model_config = SettingsConfigDict(
        env_prefix="SOFTSERVE_",
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
        protected_namespaces=(),
        populate_by_name=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 opens the service to the network."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes that serve, each with its own models and queues and its share of the processors; one that ends is
    replaced. One batches best: more are for machines where HTTP itself keeps a processor busy."""
    model_dirs: Annotated[tuple[Path, ...], Field(min_length=1)] = (BUNDLED,)
    """Directories that hold <name>/<version>/ bundles; the first one wins. In the environment: a JSON list."""
    models: tuple[str, ...] = ()
    """Names to serve, "name" (newest version) or "name:version"; every model's newest version without it."""
    watch_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """How often model directories are looked through for models that have come, changed or gone; never with 0."""
    backend: Literal["onnx", "torchscript"] = "onnx"
    """torchscript also needs --allow-torchscript."""
    allow_torchscript: bool = False
    """Open TorchScript files, which can run code: only for bundles that you trust."""
    device: Annotated[str, Field(pattern=f"^{_DEVICE}(,{_DEVICE})*$")] = "cpu"
    """cpu, cuda, tensorrt, one of several GPUs: cuda:1, or several that take from one queue, each with its copy of the
    models: cuda:0,cuda:1. What is not available is an error, never a silent fall back; auto is cuda where it is there,
    else cpu."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Threads of one model run. All that the container may use without it; lower it where other work shares them."""
    parallel_batches: Annotated[int, Field(ge=1)] = 3
    """Batches of one model that run at once, each on its share of the threads; one that is alone has them all. More
    than 1 takes the memory of another copy of the model. What writes texts takes its steps together instead."""
    max_batch_items: Annotated[int, Field(ge=1)] = 32
    """Texts in one batch at most. Raise it for throughput on a GPU."""
    max_batch_tokens: Annotated[int, Field(ge=1)] = 4096
    """Longest text times number of texts in one batch at most. Lower it where memory is short."""
    batch_cost: Annotated[int, Field(ge=0)] = 16
    """What a batch costs besides its tokens, in tokens: a text joins a batch where it causes no more padding."""
    max_delay_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """How long the first text of a batch waits for others. 0 takes what queued up while the model was busy."""
    prefix_cache_mb: Annotated[int, Field(ge=0)] = 64
    """Megabytes for what a language model computed after recent texts, so that typing on costs one step; 0 is none."""
    starvation_limit_ms: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, validation_alias="SOFTSERVE_MAX_OVERTAKEN_MS"),
        tyro.conf.arg(aliases=["--max-overtaken-ms"]),
    ] = 2000.0
    """Longest time for which more urgent requests (header Priority) may overtake a request."""
    max_wait_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Longest expected wait, by the speed measured so far, with which a request is admitted; others are refused with
    429. Without it a request is admitted where its own deadline can be met. Lower it to keep latency low."""
    max_result_items: Annotated[int, Field(ge=1)] = 100_000
    """Words, labels or tokens that the results of one request may have, such as texts x top_k or sentences x n_best x
    output tokens; more are refused with 422. Requests in flight share as many, and wait for one another."""
    decoding_cache_mb: Annotated[int, Field(ge=1)] = 128
    """Megabytes of the caches of sequences that are being translated or generated, of all models: beam size x (source +
    output) tokens each. A sequence that exceeds it alone is refused with 422, what does not fit now waits."""
    max_queue_items: Annotated[int, Field(ge=1)] = 1024
    """Texts that may wait for one model; more are refused with 429."""
    max_queue_tokens: Annotated[int, Field(ge=1)] = 131072
    """Tokens that may wait for one model; more are refused with 429."""
    request_timeout_ms: Annotated[int, Field(ge=1)] = 30000
    """Deadline of a request that names none in X-Request-Timeout-Ms."""
    max_request_timeout_ms: Annotated[int, Field(ge=1)] = 120_000
    """Longest deadline; what a request asks for beyond it is shortened to it."""
    api_keys: Path | None = None
    """File with a key a line that requests must carry one of; anybody may ask without it."""
    admin_keys: Path | None = None
    """File with a key a line that open /v1/admin/, where models are loaded and unloaded; there is none without it."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 1 << 20
    """Larger request bodies are refused with 413 before they are read to the end."""
    limit_connections: Annotated[int, Field(ge=1)] = 1000
    """Open connections of one process. Beyond it the one that has been idle for longest is closed for a new one; where
    all have a request in progress, the new one is answered 503."""
    header_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    """Seconds in which the headers of a request must arrive: from the connection, or from the request's first byte."""
    body_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    """Seconds in which the whole body of a request must arrive; later ones are refused with 408."""
    send_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """Seconds in which a client must read what it was answered; its connection is aborted after them."""
    heartbeat_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    """Seconds without a heartbeat of its event loop after which one of several processes is replaced."""
    shutdown_timeout: Annotated[int, Field(ge=1)] = 30
    """Seconds that accepted requests have to finish after SIGTERM."""
    access_log: bool = False
    """A line of JSON for each request on standard output: id, model, status, batch, times; never a text or a key."""
    tracing: bool = False
    """OpenTelemetry spans, sent to OTEL_EXPORTER_OTLP_ENDPOINT. Needs pip install 'softserve[otel]'."""
    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"
    """Least level that is logged."""

    @model_validator(mode="after")
    def _torchscript_is_allowed(self) -> Self:
        if self.backend == "torchscript" and not self.allow_torchscript:
            raise ValueError("backend torchscript runs code that a bundle may hold: allow it with --allow-torchscript")
        return self

    @model_validator(mode="after")
    def _admin_reaches_every_process(self) -> Self:
        if self.admin_keys is not None and self.workers > 1:
            raise ValueError("an admin call reaches one process only: use watch_seconds instead where workers > 1")
        return self
