"""A process that is killed while it computes a document: the next one goes on, with little done twice."""

from benchmarks.document_jobs import measure


def test_a_killed_process_repeats_at_most_a_hundredth(tmp_path):
    found = measure(tmp_path, 400_000, 100, kill_at=20.0)
    assert 0 < found.stored < found.texts
    assert found.repeated <= found.texts / 100
    assert found.same
