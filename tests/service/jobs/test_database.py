"""Jobs in the database: leases, limits, secrets, expiry."""

import pytest

from service.jobs.database import Computed, DoubtfulText, JobDatabase, NewJob, TooManyJobs


@pytest.fixture
def opened(open_database):
    """Return a function that opens the jobs of a database."""

    def jobs(path, *, per_owner=2, max_bytes=1000, lifetime=60.0, lease_seconds=30.0):
        database = open_database(path)
        return JobDatabase(
            database, per_owner=per_owner, max_bytes=max_bytes, lifetime=lifetime, lease_seconds=lease_seconds
        )

    return jobs


def new(owner="", content=b"text"):
    options = {"params": {}, "document": {}}
    return NewJob(owner=owner, form="txt", model="de-en:4", operation="translate", options=options, content=content)


def test_a_job_is_computed_by_one_process(opened, tmp_path):
    first, second = opened(tmp_path / "jobs.db"), opened(tmp_path / "jobs.db")
    job, secret = first.add(new())
    held = first.claim()
    assert (held.job.id, held.content, held.results) == (job.id, b"text", {})
    assert second.claim() is None
    assert not second.store(job.id, Computed(results={0: "stolen"}, characters=4, failed=0))
    assert first.store(job.id, Computed(results={0: "done"}, characters=4, failed=0))
    assert first.finish(job.id, b"result")
    assert second.result(job.id) == b"result"
    assert second.find(job.id, secret, "").state == "done"
    assert second.claim() is None


def test_the_first_doubtful_texts_are_kept(opened, tmp_path):
    database = opened(tmp_path / "jobs.db")
    job, secret = database.add(new())
    database.claim()
    for first in (0, 15):
        texts = [DoubtfulText("", f"text {place}") for place in range(first, first + 15)]
        database.store(job.id, Computed(results={}, characters=15, failed=0, doubtful=15, doubtful_texts=texts))
    found = database.find(job.id, secret, None)
    assert found.doubtful == 30
    assert [each.text for each in found.doubtful_texts] == [f"text {place}" for place in range(20)]


def test_an_abandoned_job_goes_on_after_its_results(opened, tmp_path):
    first, second = opened(tmp_path / "jobs.db", lease_seconds=0.0), opened(tmp_path / "jobs.db")
    job, _ = first.add(new())
    first.claim()
    first.renew(job.id, characters=8)
    first.store(job.id, Computed(results={0: "one", 1: None}, characters=4, failed=1))
    held = second.claim()
    assert (held.results, held.job.failed, held.job.percent) == ({0: "one", 1: None}, 1, 50.0)
    assert not first.store(job.id, Computed(results={2: "late"}, characters=1, failed=0))
    assert not first.renew(job.id)


def test_a_job_that_was_given_back_is_taken_at_once(opened, tmp_path):
    first, second = opened(tmp_path / "jobs.db"), opened(tmp_path / "jobs.db")
    first.add(new())
    first.release(first.claim().job.id)
    assert second.claim() is not None


def test_a_document_that_ends_every_process_is_given_up(opened, tmp_path):
    database = opened(tmp_path / "jobs.db", lease_seconds=0.0)
    job, secret = database.add(new())
    for _ in range(3):
        assert database.claim() is not None
    assert database.claim() is None
    found = database.find(job.id, secret, "")
    assert (found.state, "ended several times" in found.error) == ("error", True)


def test_a_deleted_job_cannot_be_stored(opened, tmp_path):
    database = opened(tmp_path / "jobs.db")
    job, secret = database.add(new())
    database.claim()
    database.delete(job.id)
    assert database.find(job.id, secret, "") is None
    assert not database.store(job.id, Computed(results={0: "x"}, characters=1, failed=0))
    assert not database.finish(job.id, b"x")
    assert database.result(job.id) is None


def test_a_job_is_found_by_its_secret_and_its_owner(opened, tmp_path):
    database = opened(tmp_path / "jobs.db")
    job, secret = database.add(new("user 0"))
    assert database.find(job.id, secret, "user 0").id == job.id
    for identifier, key, owner in [
        (job.id, secret, "user 1"),
        (job.id, "x", "user 0"),
        ("x", secret, "user 0"),
        ("\x00" * 32, secret, "user 0"),
    ]:
        assert database.find(identifier, key, owner) is None


def test_jobs_and_bytes_are_limited(opened, tmp_path):
    database = opened(tmp_path / "jobs.db")
    database.add(new("a"))
    database.add(new("a"))
    with pytest.raises(TooManyJobs, match="the limit is 2"):
        database.add(new("a"))
    with pytest.raises(TooManyJobs, match="bytes"):
        database.add(new("b", bytes(600)))
    database.add(new("b"))


def test_jobs_expire(opened, tmp_path):
    database = opened(tmp_path / "jobs.db", lifetime=-1.0)
    job, secret = database.add(new())
    assert database.claim() is None
    assert database.find(job.id, secret, "") is None
    database.remove_expired()
    database.delete(job.id)
