import re

import pytest
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.server.app import create_app
from service.settings import Settings

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="module")
def exporter():
    """Keeps the spans of this process; a process has one provider, so that other tests' spans come too."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def ask(exporter, wait_until):
    """Asks a service with these settings; gives the answer and the spans by name."""

    def ask(*requests, **settings):
        with TestClient(create_app(Settings(threads=1, models=("next-word:4",), **settings))) as client:
            wait_until(lambda: client.get("/readyz").status_code == 200)
            exporter.clear()
            for path, body in requests:
                answer = client.post(path, json=body, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        spans = {}
        for span in exporter.get_finished_spans():
            spans.setdefault(span.name, []).append(span)
        return answer, spans

    return ask


def test_a_request_is_a_child_of_its_caller_and_parent_of_its_parts(ask):
    answer, spans = ask(("/v1/score", {"text": ["thank you", "a secret"]}), tracing=True)
    assert answer.status_code == 200
    (request,) = spans["POST /v1/score"]
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    for name in ("tokenize", "queue", "infer"):
        (part,) = spans[name]
        assert part.parent.span_id == request.context.span_id
        assert part.start_time <= part.end_time
    assert spans["tokenize"][0].end_time == spans["queue"][0].start_time
    assert spans["queue"][0].end_time == spans["infer"][0].start_time
    said = dict(re.findall(r"(\w+);dur=([\d.]+)", answer.headers["server-timing"]))
    infer = spans["infer"][0]
    assert (infer.end_time - infer.start_time) / 1e6 == pytest.approx(float(said["infer"]), abs=0.01)


def test_a_batch_is_linked_to_its_requests_once_and_holds_no_text(ask):
    _, spans = ask(("/v1/score", {"text": ["thank you", "secretly"]}), tracing=True, batch_cost=16)
    (batch,) = spans["batch"]
    (request,) = spans["POST /v1/score"]
    assert batch.parent is None
    assert [link.context.span_id for link in batch.links] == [request.context.span_id]
    assert dict(batch.attributes) == {
        "softserve.model": "next-word",
        "softserve.batch": spans["infer"][0].attributes["softserve.batch"],
        "softserve.items": 2,
        "softserve.tokens": batch.attributes["softserve.tokens"],
    }
    assert "secretly" not in " ".join(span.to_json() for each in spans.values() for span in each)


def test_without_the_setting_there_are_no_spans(ask):
    answer, spans = ask(("/v1/score", {"text": "thank you"}))
    assert answer.status_code == 200
    assert spans == {}
