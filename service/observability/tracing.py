"""OpenTelemetry spans, with `--tracing`.

FastAPI makes a span of each request, a child of the caller's (W3C `traceparent`), and exports spans to
the collector that the variables `OTEL_EXPORTER_OTLP_...` name. Its children are spans of tokenization, queue and
inference; each batch has a span of its own, which is linked to all requests in it. No span holds a text.
"""

import time
from collections.abc import Iterable, Sequence

from opentelemetry import trace
from opentelemetry.trace import Link, SpanContext, SpanKind

__all__ = ["BatchTracer", "trace_request"]

_SECOND = 1_000_000_000
"""Nanoseconds."""


def trace_request(preparation: float, queue: float, inference: float, batch: int) -> None:
    """Record spans of the steps of a request that ends now, in seconds; call it within the request's span."""
    tracer = trace.get_tracer("softserve")
    end = time.time_ns()
    parts = {"infer": inference, "queue": queue, "tokenize": preparation}
    for name, seconds in parts.items():  # the last first
        start = end - round(_SECOND * seconds)
        attributes = {"softserve.batch": batch} if name == "infer" else {}
        tracer.start_span(name, start_time=start, attributes=attributes).end(end)
        end = start


class BatchTracer:
    """The spans of one model's batches."""

    def __init__(self, model: str) -> None:
        self._model = model

    def context(self) -> SpanContext:
        """Return the span context of the current request."""
        return trace.get_current_span().get_span_context()

    def batch(self, number: int, lengths: Sequence[int], requests: Iterable[SpanContext], seconds: float) -> None:
        """Record a batch that ends now, of texts of these requests; several may belong to one request."""
        end = time.time_ns()
        links = {each.span_id: Link(each) for each in requests if each.is_valid}
        attributes: dict[str, str | int] = {
            "softserve.model": self._model,
            "softserve.batch": number,
            "softserve.items": len(lengths),
            "softserve.tokens": sum(lengths),
        }
        tracer, start = trace.get_tracer("softserve"), end - round(_SECOND * seconds)
        root = trace.set_span_in_context(trace.INVALID_SPAN)
        span = tracer.start_span("batch", root, SpanKind.INTERNAL, attributes, [*links.values()], start_time=start)
        span.end(end)
