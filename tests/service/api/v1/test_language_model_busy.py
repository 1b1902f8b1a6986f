"""Tests of `/v1/next-word` and `/v1/score` while the model is busy."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.service.api.v1.test_language_model import next_word, results

# ---- a busy model ----


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def busy(serve, gate, pool, metric, wait_until):
    """A service that computes one request and does not go on before the gate opens; posts more on threads."""

    class Busy:
        def __init__(self, **settings):
            self.client = serve(max_batch_items=1, **settings)
            gate.opened.clear()
            self.running = pool.submit(next_word, self.client, context="running")
            assert gate.entered.wait(20)

        def queue(self, **body):
            """Posts a request and waits until it is in the queue."""
            before = metric(self.client, "softserve_queue_items")
            posted = pool.submit(next_word, self.client, **body)
            wait_until(lambda: metric(self.client, "softserve_queue_items") > before)
            return posted

    yield Busy
    gate.opened.set()


def test_a_deadline_that_passes_in_the_queue(busy, gate, detail_of, metric):
    service = busy()
    patient = service.queue(context="patient")
    late = next_word(service.client, context="late", headers={"X-Request-Timeout-Ms": "500"})
    assert "deadline" in detail_of(late, 504)  # while the batch before it still runs
    gate.opened.set()
    assert results(patient.result())[0]["context"] == "patient"
    assert results(service.running.result())
    assert gate.contexts == ["running", "patient"]
    assert metric(service.client, "softserve_rejected_total", reason="expired") == 1


def test_the_deadline_of_the_settings_holds_where_none_is_sent(busy, detail_of):
    service = busy(request_timeout_ms=300)
    assert "deadline" in detail_of(service.running.result(), 504)  # although it is being computed
    assert "deadline" in detail_of(next_word(service.client, context="late"), 504)


def test_no_request_gets_a_longer_deadline_than_the_server_allows(busy, detail_of):
    service = busy(max_request_timeout_ms=300)
    started = time.monotonic()
    late = next_word(service.client, context="late", headers={"X-Request-Timeout-Ms": "3600000"})
    assert "deadline" in detail_of(late, 504)
    assert 0.25 < time.monotonic() - started < 5


def test_more_result_items_than_a_request_may_have_are_refused_before_anything_is_read(serve, gate, detail_of):
    client = serve(max_result_items=20)
    assert "21 result items (--max-result-items); the limit is 20" in detail_of(
        next_word(client, context=["we"] * 3, top_k=7), 422
    )
    assert gate.contexts == []
    assert len(results(next_word(client, context=["we", "had"], top_k=10))) == 2
    detail = detail_of(client.post("/v1/score", json={"text": "a " * 20}), 422)
    assert "21 result items" in detail


def test_requests_wait_for_the_result_items_of_others(busy, gate, pool, detail_of):
    service = busy(max_result_items=70)
    assert "deadline" in detail_of(
        next_word(service.client, context="big", top_k=70, headers={"X-Request-Timeout-Ms": "100"}), 504
    )  # the running one has 10 of them
    waiting = pool.submit(next_word, service.client, context="big", top_k=70)
    gate.opened.set()
    assert len(results(waiting.result())[0]["words"]) == 70


def test_typing_on_reads_one_word(serve, library, metric):
    client, text = serve(), "we had a very nice day"
    words = text.split()
    for count in range(1, len(words) + 1):
        context = " ".join(words[:count])
        (answer,) = results(next_word(client, context=context, top_k=3))
        (expected,) = library.next_words([context], 3)
        assert [each["word"] for each in answer["words"]] == [each.word for each in expected.words]
        probabilities = [each.probability for each in expected.words]
        assert [each["probability"] for each in answer["words"]] == pytest.approx(probabilities, rel=1e-4)
        assert answer["entropy"] == pytest.approx(expected.entropy, rel=1e-4)
    # The first is read with the sentence end before it, the others go on from it.
    assert metric(client, "softserve_batch_tokens_sum") == len(words) + 1
    assert metric(client, "softserve_prefix_cache_misses_total") == 1
    assert metric(client, "softserve_prefix_cache_hits_total") == len(words) - 1


def test_the_same_context_is_not_computed_again(serve, gate):
    client = serve()
    first = results(next_word(client, context="we had a", top_k=5))
    assert results(next_word(client, context="We had  a", top_k=5))[0]["words"] == first[0]["words"]
    assert results(next_word(client, context="we had a", top_k=2))[0]["words"] == first[0]["words"][:2]
    assert gate.contexts == ["we had a"]
    assert len(results(next_word(client, context="we had a", top_k=7))[0]["words"]) == 7
    assert gate.contexts == ["we had a"] * 2


def test_known_and_new_contexts_of_one_request_keep_their_places(serve, library):
    client, contexts = serve(), ["you are", "we had", "you are", "thank you very"]
    next_word(client, context="we had", top_k=2)
    found = [each["words"][0]["word"] for each in results(next_word(client, context=contexts, top_k=2))]
    assert found == [each.words[0].word for each in library.next_words(contexts, 2)]


def test_without_a_cache_everything_is_read(serve, gate):
    client = serve(prefix_cache_mb=0)
    for _ in range(2):
        assert results(next_word(client, context="we had"))
    assert gate.contexts == ["we had", "we had"]


def test_urgent_requests_go_first_until_others_have_waited_too_long(busy, gate):
    service = busy(starvation_limit_ms=60_000)
    posted = [
        service.queue(context=context, headers=headers)
        for context, headers in (
            ("low", {"Priority": "u=6"}),
            ("usual", None),
            ("urgent", {"Priority": "u=0, i"}),
        )
    ]
    gate.opened.set()
    assert all(results(each.result()) for each in posted)
    assert gate.contexts == ["running", "urgent", "usual", "low"]


def test_a_full_queue_is_overloaded_until_it_is_not(busy, gate, detail_of, metric):
    service = busy(max_queue_items=1)
    waiting = service.queue(context="waiting")
    refused = next_word(service.client, context="refused")
    assert "queue is full" in detail_of(refused, 429)
    assert refused.headers["retry-after"] == "1"
    assert metric(service.client, "softserve_rejected_total", reason="overloaded") == 1
    gate.opened.set()
    assert results(waiting.result())[0]["context"] == "waiting"
    assert results(next_word(service.client, context="later"))
    assert "refused" not in gate.contexts


@pytest.mark.parametrize(
    ("limit", "context"), [({"max_queue_items": 2}, ["a", "b", "c"]), ({"max_queue_tokens": 5}, "a b c d e")]
)
def test_a_request_larger_than_the_queue(serve, gate, detail_of, limit, context):
    client = serve(**limit)
    response = next_word(client, context=context)
    assert "send fewer at a time" in detail_of(response, 413)
    assert "retry-after" not in response.headers
    assert gate.contexts == []
    assert results(next_word(client, context="a"))


def test_concurrent_requests_share_batches(serve, gate, pool, metric, wait_until):
    client = serve()
    gate.opened.clear()
    posted = [pool.submit(next_word, client, context="running")]
    assert gate.entered.wait(20)
    posted += [pool.submit(next_word, client, context=f"number {number}") for number in range(3)]
    wait_until(lambda: metric(client, "softserve_queue_items") == 3)
    gate.opened.set()
    contexts = [results(response.result())[0]["context"] for response in posted]
    assert contexts == ["running", "number 0", "number 1", "number 2"]
    assert metric(client, "softserve_batch_items_count") == 2
