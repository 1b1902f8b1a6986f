"""Tests of watching model directories: bundles that appear, change and disappear."""

import asyncio
import errno
import json
import os
import shutil
import threading

from models import ModelStore
from service.engine import loading, watching
from service.engine.trial import LoadTimeoutError
from service.engine.watching import DirectoryWatcher
from tests.service.engine.test_served_models import counts, quick, until, with_registry

__all__ = ["quick"]


def served_versions(registry):
    return sorted(version for _, version in registry.served)


def watched(scenario, **settings):
    async def run(registry):
        watcher = DirectoryWatcher(registry, registry.loader)
        looks, look = [], watcher._scan

        def count():
            looks.append(None)
            return look()

        async def looked():
            """Returns after two whole looks at the directory."""
            before = len(looks)
            await until(lambda: len(looks) > before + 2)

        watcher._scan = count
        watching = asyncio.create_task(watcher.run(0.01))
        await scenario(registry, looked)
        watching.cancel()
        await asyncio.wait([watching])

    with_registry(run, **settings)


def test_an_older_version_that_an_administrator_loads_stays(quick, two_versions):
    async def scenario(registry, looked):
        await registry.add("next-word:8")
        await looked()
        assert served_versions(registry) == [8, 9]
        assert counts(registry) == (2, 2)
        await registry.remove("next-word:8")
        await looked()
        assert served_versions(registry) == [9]
        assert counts(registry) == (1, 1)

    watched(scenario, model_dirs=(two_versions,))


def test_a_version_that_an_administrator_loads_goes_with_its_files(quick, two_versions):
    async def scenario(registry, looked):
        await registry.add("next-word:8")
        shutil.rmtree(two_versions / "next-word" / "8")
        await until(lambda: served_versions(registry) == [9])
        await looked()
        assert counts(registry) == (1, 1)

    watched(scenario, model_dirs=(two_versions,))


def test_it_stays_when_a_newer_version_appears_and_is_loaded_again_when_it_changes(quick, two_versions):
    async def scenario(registry, looked):
        old = await registry.add("next-word:8")
        copy_as(two_versions, 8, 10)
        await until(lambda: served_versions(registry) == [8, 10])
        await looked()
        assert registry.served["next-word", 8] is old
        rewrite(two_versions, 8, description="changed")
        await until(lambda: registry.served["next-word", 8] is not old)
        assert served_versions(registry) == [8, 10]

    watched(scenario, model_dirs=(two_versions,))


def test_a_newest_version_that_does_not_load_replaces_nothing_though_an_older_one_is_kept(quick, two_versions):
    async def scenario(registry, looked):
        await registry.add("next-word:8")
        copy_as(two_versions, 8, 10)
        rewrite(two_versions, 10, name=5)
        await looked()
        assert served_versions(registry) == [8, 9]
        assert counts(registry) == (2, 1)

    watched(scenario, model_dirs=(two_versions,))


def test_what_an_administrator_loads_is_not_loaded_a_second_time(quick, two_versions):
    async def scenario(registry, looked):
        rewrite(two_versions, 8, description="changed")
        served = await registry.add("next-word:8")
        await looked()
        assert registry.served["next-word", 8] is served

    watched(scenario, model_dirs=(two_versions,))


def test_what_an_administrator_unloads_stays_unloaded_and_is_not_missed(quick, two_versions):
    async def scenario(registry, looked):
        await registry.remove("next-word")
        await looked()
        assert served_versions(registry) == []
        assert counts(registry) == (0, 0)
        rewrite(two_versions, 9, description="changed")
        await until(lambda: served_versions(registry) == [9])
        assert counts(registry) == (1, 1)

    watched(scenario, model_dirs=(two_versions,))


def test_a_change_between_loading_and_the_first_look_is_noticed(quick, two_versions):
    async def scenario(registry):
        (old,) = registry.served.values()
        rewrite(two_versions, 9, description="changed")
        watching = asyncio.create_task(DirectoryWatcher(registry, registry.loader).run(0.01))
        await until(lambda: registry.served["next-word", 9] is not old)
        watching.cancel()
        await asyncio.wait([watching])

    with_registry(scenario, model_dirs=(two_versions,))


def test_files_are_read_off_the_event_loop(quick, two_versions, monkeypatch):
    loop_thread, wrong = threading.get_ident(), []

    def elsewhere(function):
        def checked(*arguments):
            if threading.get_ident() == loop_thread:
                wrong.append(function.__name__)
            return function(*arguments)

        return checked

    async def scenario(registry, looked):
        for module, name in ((loading, "signature_of"), (watching, "signature_of"), (loading, "sha256_of")):
            monkeypatch.setattr(module, name, elsewhere(getattr(module, name)))
        monkeypatch.setattr(ModelStore, "_bundles", elsewhere(ModelStore._bundles))
        await registry.add("next-word:8")
        await registry.remove("next-word:8")
        await looked()

    watched(scenario, model_dirs=(two_versions,))
    assert wrong == []


def copy_as(models, source, version):
    shutil.copytree(models / "next-word" / str(source), models / "next-word" / "draft")
    rewrite(models, "draft", version=version)
    (models / "next-word" / "draft").rename(models / "next-word" / str(version))


def rewrite(models, directory, **changes):
    path = models / "next-word" / str(directory) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# ---- entries that cannot be read, and bundles that do not load ----


def hide(directory):
    """Running as root, a test cannot lose permissions; no user can read a link to itself."""
    directory.rename(directory.with_name("moved"))
    directory.symlink_to(directory.name)


def show(directory):
    directory.unlink()
    directory.with_name("moved").rename(directory)


def test_a_served_model_that_cannot_be_read_stays_in_place_of_an_older_one(quick, two_versions, caplog):
    async def scenario(registry, looked):
        (served,) = registry.served.values()
        hide(two_versions / "next-word" / "9")
        await looked()
        assert list(registry.served.values()) == [served]
        assert registry.problems == {two_versions / "next-word" / "9": f"it cannot be read: {os.strerror(errno.ELOOP)}"}
        assert registry._metrics.bundle_problems._value.get() == 1
        show(two_versions / "next-word" / "9")
        await looked()
        assert list(registry.served.values()) == [served]
        assert (registry.problems, registry._metrics.bundle_problems._value.get()) == ({}, 0)

    watched(scenario, model_dirs=(two_versions,))
    assert caplog.text.count("9 is skipped: it cannot be read") == 1


def test_a_newer_version_that_cannot_be_read_is_named(quick, two_versions, caplog):
    async def scenario(registry, looked):
        (two_versions / "next-word" / "10").symlink_to("nothing")
        (two_versions / "next-word" / "11").touch()
        await looked()
        assert served_versions(registry) == [9]
        assert [(path.name, problem) for path, problem in registry.problems.items()] == [
            ("10", "it is a link to nothing"),
            ("11", "it is no directory"),
        ]

    watched(scenario, model_dirs=(two_versions,))
    assert "10 is skipped: it is a link to nothing" in caplog.text


def test_a_fifo_as_manifest_stops_no_later_load(quick, two_versions, caplog):
    async def scenario(registry, looked):
        (two_versions / "evil" / "1").mkdir(parents=True)
        os.mkfifo(two_versions / "evil" / "1" / "manifest.json")
        await looked()
        copy_as(two_versions, 8, 10)
        await until(lambda: served_versions(registry) == [10])
        (problem,) = registry.problems.values()
        assert problem == "manifest.json cannot be read: it is a FIFO, not a file"
        assert registry._metrics.load_failures.labels("invalid")._value.get() == 1
        shutil.rmtree(two_versions / "evil")
        await looked()
        assert registry.problems == {}

    watched(scenario, model_dirs=(two_versions,), models=())
    assert caplog.text.count("does not load") == 1


def test_a_link_to_nothing_in_a_bundle_stops_no_later_load(quick, two_versions):
    async def scenario(registry, looked):
        copy_as(two_versions, 8, 10)
        (two_versions / "next-word" / "10" / "weights.bin").unlink()
        (two_versions / "next-word" / "10" / "weights.bin").symlink_to("nothing")
        await looked()
        copy_as(two_versions, 8, 11)
        await until(lambda: served_versions(registry) == [11])

    watched(scenario, model_dirs=(two_versions,))


def test_a_failed_trial_is_counted_and_logged_in_one_line(quick, two_versions, monkeypatch, caplog):
    def fail(path, *_, **__):
        raise LoadTimeoutError(str(path), ["it\ndid not load"])

    monkeypatch.setattr(loading, "try_bundle", fail)

    async def scenario(registry, looked):
        copy_as(two_versions, 8, 10)
        await looked()
        assert served_versions(registry) == [9]
        assert registry._metrics.load_failures.labels("timeout")._value.get() == 1
        assert counts(registry) == (1, 0)

    watched(scenario, model_dirs=(two_versions,))
    (record,) = [each for each in caplog.records if "does not load" in each.getMessage()]
    assert record.getMessage() == f"{two_versions / 'next-word' / '10'} does not load: it did not load"
