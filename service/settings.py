"""Settings of the service: flags of `softserve serve`, each with an environment twin `SOFTSERVE_<NAME>`."""

import math
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tyro
from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from models.store import BUNDLED

__all__ = ["BUNDLED", "DEFAULT_PROTOCOLS", "EXTRAS", "NATIVE", "PROTOCOLS", "Settings", "protocol_names"]

NATIVE = "native"
"""The name of the service's own endpoints, `/v1/...`."""

PROTOCOLS: Mapping[str, str] = {
    "oip": "service.protocols.open_inference",
    "openai": "service.protocols.openai",
    "deepl": "service.protocols.deepl",
    "libretranslate": "service.protocols.libretranslate",
    "tei": "service.protocols.tei",
    "hf": "service.protocols.huggingface",
    "mcp": "service.protocols.mcp",
}
"""The package of each protocol, which has a `PROTOCOL`; it is imported where the protocol is served."""


EXTRAS = frozenset({"mcp"})
"""Protocols that need the extra of their name."""
_DECODING_CACHE_BYTES, _DECODING_SHARE = 128 << 20, 1 / 8
"""Decoding caches that are not stated take so many bytes, or such a share of the available memory."""
_PREFIX_CACHE_BYTES, _PREFIX_TEXTS, _PREFIX_SHARE = 64 << 20, 8, 1 / 16
"""A prefix cache that is not stated takes so many bytes, or so many of the longest texts as this share of the available
memory holds."""
DEFAULT_PROTOCOLS = ",".join((NATIVE, *(name for name in PROTOCOLS if name not in EXTRAS)))


def protocol_names(names: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list; raises `ValueError` for one that is unknown."""
    found = tuple(name.strip() for name in names.split(",") if name.strip())
    known = (NATIVE, *PROTOCOLS)
    if unknown := [name for name in found if name not in known]:
        raise ValueError(f"unknown protocol {unknown[0]!r}; known protocols: {', '.join(known)}")
    return found


_SERVICE_LINK = re.compile(r"tcp://[0-9a-fA-F.:\[\]]+:[0-9]{1,5}")
"""The value of `SOFTSERVE_PORT` in pods of Kubernetes where a Service has the name `softserve` (service links)."""
_DEVICE = "(auto|cpu|(cuda|tensorrt)(:[0-9]{1,3})?)"


_DATABASE = ("sqlalchemy", "python_multipart")
"""Packages without which there is no database."""


class Settings(BaseSettings):
    """Settings of the service. Flags take precedence over the environment, the environment over the defaults."""

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
    """Processes that serve, each with its own models, queues and share of the processors; one that ends is replaced.
    One process batches best; use more where HTTP itself keeps a processor busy."""
    model_dirs: Annotated[tuple[Path, ...], Field(min_length=1)] = (BUNDLED,)
    """Directories that hold <name>/<version>/ bundles; the first one wins. In the environment: a JSON list."""
    models: tuple[str, ...] = ()
    """Names to serve, "name" (newest version) or "name:version"; every model's newest version without it."""
    watch_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Seconds between two checks of the model directories for new, changed or removed models; 0 disables them."""
    map_weights: bool = False
    """Map weights from the files of the model directories instead of copies in the temporary directory (TMPDIR). Saves
    room there. A file that is then changed in place changes answers, and one that is shortened ends the process."""
    require_signature: Path | None = None
    """PEM file of a public key, or of certificates: models are loaded, also anew, only where the signature of their
    bundle (model.sig, of softserve-train sign) is of that key, or of a key with a certificate that these certificates
    issued. Needs pip install 'softserve[signing]'. Without it signatures are not read."""
    load_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    """Seconds in which a model must be loaded and warmed up. Raise it where a device compiles graphs, as TensorRT
    does."""
    load_memory_mb: Annotated[int, Field(ge=1)] | None = None
    """Megabytes of memory that loading and warming up one model may take; files that are mapped from a disk do not
    count. Without it 2048 and
    eight times the size of its files, at most 80 % of the available memory."""
    backend: Literal["onnx", "torchscript"] = "onnx"
    """torchscript also needs --allow-torchscript."""
    allow_torchscript: bool = False
    """Open TorchScript files, which can run code: only for trusted bundles."""
    device: Annotated[str, Field(pattern=f"^{_DEVICE}(,{_DEVICE})*$")] = "cpu"
    """cpu, cuda, tensorrt (where libnvinfer is installed), one of several GPUs: cuda:1, or several that share one
    queue, each with its copy of the models: cuda:0,cuda:1. An unavailable device is an error, never a silent fallback;
    auto is cuda where it is available, else cpu."""
    allow_cpu_fallback: bool = False
    """Load models for whose operators a GPU has no kernel; the CPU then computes those, with a warning at load."""
    gpu_memory_mb: Annotated[int, Field(ge=1)] | None = None
    """Megabytes of the memory of each GPU that all models of the service may take together, the libraries of the GPU
    apart. A model that does not fit is not loaded. Without it there is no limit."""
    gpu_work_mb: Annotated[int, Field(ge=1)] = 256
    """With --gpu-memory-mb, megabytes of these that each graph of a model may take in addition to its weights. Raise it
    where batches are large, lower it where many models share a GPU."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Threads of one model run. All that the container may use without it; lower it where other work shares them."""
    parallel_batches: Annotated[int, Field(ge=1)] = 3
    """Concurrent batches of one model, each on its share of the threads; a single one has them all. More than 1 needs
    the memory of another copy of the model; where that is more than a quarter of the available memory, batches share
    one copy and all threads. Autoregressive models run as many decodings at once, on a CPU at most one for each thread
    and one of a model without another copy, on a GPU one."""
    max_batch_items: Annotated[int, Field(ge=1)] = 32
    """Largest number of texts in one batch. Raise it for throughput on a GPU."""
    max_batch_tokens: Annotated[int, Field(ge=1)] = 4096
    """Largest batch in tokens: longest text times number of texts. Lower it where memory is short."""
    batch_cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Fixed cost of a batch, in tokens: a text joins a batch where it causes no more padding than that. Without it the
    cost is measured, for each operation of each model on each device."""
    max_delay_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Longest time that the first text of a batch waits for others. With 0 a batch holds the texts that queued up while
    the model was busy."""
    prefix_cache_mb: Annotated[int, Field(ge=0)] | None = None
    """Megabytes of the cache of each language model's states after recent texts, so that a continued text costs one
    step a word; 0 disables it. Without it 64, or what eight of the longest texts take, if that is more and at most a
    sixteenth of the memory that is available to each worker as the model is loaded."""
    result_cache_mb: Annotated[int, Field(ge=0)] = 0
    """Megabytes of the cache of results, of each process: an input that was computed with the same parameters by the
    same loaded model for the same API key is not computed again, and one that is being computed is awaited. Results
    that draw at random are not cached. 0 disables it."""
    share_prefix_cache: bool = False
    """Whether requests with different API keys share the entries of this cache. They do not by default: the time of an
    answer tells whether a context is in the cache, so that one client could find out what another has asked. With it a
    context that several clients ask is read once. Without --api-keys all share them."""
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
    decoding_cache_mb: Annotated[int, Field(ge=1)] | None = None
    """Megabytes of the caches of sequences that are being translated or generated, of all models: beam size x (source +
    output) tokens each. A sequence that exceeds it alone is refused with 422, one that does not fit now waits. Half of
    it may be taken by completions, of which each has the tokens of its prompt and `max_tokens`. Without it 128, or an
    eighth of the memory that is available to each worker at its start if that is more and no GPU's memory is
    limited."""
    max_queue_items: Annotated[int, Field(ge=1)] = 1024
    """Texts that may wait for one model; more are refused with 429."""
    max_queue_tokens: Annotated[int, Field(ge=1)] = 131072
    """Tokens that may wait for one model; more are refused with 429."""
    request_timeout_ms: Annotated[int, Field(ge=1)] = 30000
    """Deadline of a request that names none in X-Request-Timeout-Ms."""
    max_request_timeout_ms: Annotated[int, Field(ge=1)] = 120_000
    """Longest deadline; a longer one of a request is shortened to it."""
    computation_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Seconds after which a batch, a decoding step or the preparation of a request is interrupted. Where it does not
    return even then, requests to its model are refused with 503, and /readyz answers 503, until it does. By default the
    longest deadline (--max-request-timeout-ms), after which no request awaits it. A batch or step whose requests have
    all expired or been cancelled is interrupted earlier."""
    api_keys: Path | None = None
    """File with an API key on each line, of which requests must carry one; without it no key is needed. As TOML it
    has a name, a weight and limits for each key (docs/api-keys.md). It is read again where it changes."""
    admin_keys: Path | None = None
    """File with a key on each line for /v1/admin/, where models are loaded and unloaded; without it
    these paths do not exist."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 1 << 20
    """Larger request bodies are refused with 413 before they are read to the end."""
    pivot_language: Annotated[str, Field(pattern=r"^(any|none|[A-Za-z_-]{2,16}( *, *[A-Za-z_-]{2,16})*)$")] = "any"
    """Third language through which a text is translated where no model translates directly: a code, several separated
    by commas, the preferred one first, any (English is preferred), or none."""
    default_target_language: Annotated[str, Field(pattern=r"^[A-Za-z_-]{2,16}$")] | None = None
    """Code of the language to which a request is translated that names neither a target language nor a model."""
    database: str | None = None
    """Database of stored data: sqlite:///PATH, or postgresql://... Several processes can share it. It holds documents
    that are translated in the background and their translations, glossaries, the characters that each key has had
    translated by DeepL's API, and those that keys have used of their daily budgets. Without it the paths of documents
    and glossaries do not exist. Needs pip install 'softserve[documents]', and for PostgreSQL its driver: pip install
    'psycopg[binary]'."""
    max_glossaries: Annotated[int, Field(ge=1)] = 100
    """Glossaries of one API key in the database; more are refused with 409. Without --api-keys those of all clients."""
    max_glossary_entries: Annotated[int, Field(ge=1)] = 100_000
    """Entries of all glossaries of one API key; more are refused with 409."""
    max_document_bytes: Annotated[int, Field(ge=1, le=1 << 28)] = 16 << 20
    """Larger documents are refused with 413 before they are read to the end."""
    max_documents: Annotated[int, Field(ge=1)] = 20
    """Documents of one API key that are not translated yet; more are refused with 429. Without --api-keys those of all
    clients."""
    max_documents_mb: Annotated[int, Field(ge=1)] = 1024
    """Megabytes of all documents and translations in the database; more are refused with 429."""
    document_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 24.0
    """Hours after which a document and its translation are deleted."""
    document_lease_seconds: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 30.0
    """Seconds without a heartbeat of the process that translates a document after which another one goes on with it."""
    limit_connections: Annotated[int, Field(ge=1)] = 1000
    """Open connections of one process. Beyond it the one that has been idle for longest is closed for a new one; where
    all have a request in progress, 503 is the answer to all but probes and /metrics, for which 32 more are kept."""
    header_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    """Seconds in which the headers of a request must arrive: from the connection, or from the request's first byte."""
    body_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    """Seconds in which the whole body of a request must arrive; later ones are refused with 408. Over gRPC, a call
    without a message for as long is ended."""
    send_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """Seconds that the service waits, in all, for a client to read an answer; then its connection is aborted. The time
    between the parts of a stream does not count."""
    heartbeat_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    """Seconds without a heartbeat of its event loop after which one of several processes is replaced."""
    hang_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Seconds without progress of the event loop after which the process exits, with the stacks of its threads on
    standard error, so that a container engine restarts it: 60 in the images. So does a single process in which a
    computation has not returned for as long after it was given up. Time for which the process is paused does not count.
    0 disables it."""
    drain_delay: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 0.0
    """Seconds after SIGTERM in which requests are still accepted while /readyz answers 503, so that load balancers stop
    sending requests before the port is closed. At least the time in which they notice: 5 in the images."""
    shutdown_timeout: Annotated[int, Field(ge=1)] = 30
    """Seconds in which accepted requests must finish once the port is closed, after SIGTERM and drain_delay."""
    protocols: str = DEFAULT_PROTOCOLS
    """APIs to serve, separated by commas: native is /v1, the others are those of other services (docs/clients.md).
    By default all but mcp, which needs pip install 'softserve[mcp]'."""
    grpc_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Port of the Open Inference Protocol over gRPC, by default none. Needs pip install 'softserve[grpc]'."""
    mcp_hosts: str = ""
    """Names by which MCP clients reach the service, separated by commas, besides localhost: others are refused, as
    pages of other sites could use them (DNS rebinding)."""
    cors_origins: str = ""
    """Origins whose web pages may call the service from a browser, separated by commas; * for all, none by default."""
    access_log: bool = False
    """A line of JSON for each request on standard output: id, model, status, batch, times; never a text or a key."""
    tracing: bool = False
    """OpenTelemetry spans, sent to OTEL_EXPORTER_OTLP_ENDPOINT. Needs pip install 'softserve[otel]'."""
    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"
    """Lowest level that is logged."""

    @field_validator("port", "grpc_port", mode="before")
    @classmethod
    def _no_service_link(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the default in place of a service link of Kubernetes, which is the address of a Service."""
        if isinstance(value, str) and _SERVICE_LINK.fullmatch(value):
            return cls.model_fields[str(info.field_name)].default
        return value

    @property
    def longest_computation(self) -> float:
        """Seconds after which a computation is interrupted."""
        return self.computation_timeout or self.max_request_timeout_ms / 1000

    def decoding_cache_bytes(self, available: float = 0.0) -> int:
        """Return the size of the decoding caches of a process for which so many bytes of memory are available."""
        if self.decoding_cache_mb is not None:
            return self.decoding_cache_mb << 20
        known = self.gpu_memory_mb is None and math.isfinite(available)
        return max(_DECODING_CACHE_BYTES, int(_DECODING_SHARE * available) if known else 0)

    def prefix_cache_bytes(self, longest_text: int = 0, available: float = 0.0) -> int:
        """Return the size of the prefix cache of a model whose longest text takes so many bytes.

        `available` is the memory that is available to the process, in bytes.
        """
        if self.prefix_cache_mb is not None:
            return self.prefix_cache_mb << 20
        most = _PREFIX_SHARE * available if math.isfinite(available) else 0.0
        return max(_PREFIX_CACHE_BYTES, int(min(_PREFIX_TEXTS * longest_text, most)))

    @property
    def max_body_values(self) -> int:
        """Texts, numbers, lists and fields of one request body: as many as texts and tokens may wait for a model."""
        return self.max_queue_items + self.max_queue_tokens

    @field_validator("protocols")
    @classmethod
    def _known_protocols(cls, value: str) -> str:
        for name in EXTRAS.intersection(protocol_names(value)):
            if find_spec(name) is None:
                raise ValueError(f"the protocol {name} needs pip install 'softserve[{name}]'")
        return value

    @field_validator("database")
    @classmethod
    def _database_can_be_opened(cls, value: str | None) -> str | None:
        if value is not None and (missing := [name for name in _DATABASE if find_spec(name) is None]):
            raise ValueError(f"a database needs {missing[0]}: pip install 'softserve[documents]'")
        return value

    @model_validator(mode="after")
    def _torchscript_is_allowed(self) -> Self:
        if self.backend == "torchscript" and not self.allow_torchscript:
            raise ValueError("backend torchscript runs code that a bundle may hold: allow it with --allow-torchscript")
        return self

    @model_validator(mode="after")
    def _signatures_can_be_checked(self) -> Self:
        if self.require_signature is not None and find_spec("model_signing") is None:
            raise ValueError("require_signature needs model_signing: pip install 'softserve[signing]'")
        if self.require_signature is not None and self.map_weights:
            raise ValueError("map_weights loads files that can change after their signature is checked")
        return self

    @model_validator(mode="after")
    def _gpu_memory_can_be_limited(self) -> Self:
        if self.gpu_memory_mb is None:
            return self
        kinds = {device.partition(":")[0] for device in self.device.split(",")}
        if self.backend != "onnx" or not kinds <= {"auto", "cpu", "cuda"} or kinds == {"cpu"}:
            raise ValueError("gpu_memory_mb limits the memory of models on devices cuda and auto, of backend onnx")
        if self.gpu_memory_mb // self.workers <= self.decoding_cache_bytes() >> 20:
            raise ValueError("gpu_memory_mb must be larger than decoding_cache_mb, for each of the workers")
        return self

    @model_validator(mode="after")
    def _grpc_is_installed(self) -> Self:
        if self.grpc_port is not None:
            if "oip" not in protocol_names(self.protocols):
                raise ValueError("grpc_port is that of the protocol oip, which is not among the protocols")
            if find_spec("grpc") is None:
                raise ValueError("grpc_port needs pip install 'softserve[grpc]'")
        return self
