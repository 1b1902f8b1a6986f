"""Tests of the `softserve` command, in this process; see test_server.py for what `serve` runs."""

import contextlib
import signal
import subprocess
import sys
from importlib import metadata

import pytest

from service.cli import main
from service.settings import BUNDLED, Settings
from tests.fixtures.bundled import DE_EN


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `softserve` with arguments; return the exit status and both output streams."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["softserve", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        code = caught.value.code
        # The interpreter prints a message that it is left with, and exits with 1.
        return (1, code + printed.err) if isinstance(code, str) else (code or 0, printed.out + printed.err)

    return call


@pytest.fixture
def bundle(copied_models):
    (manifest,) = copied_models.glob("*/*/manifest.json")
    return manifest.parent


# ---- inspect ----


def test_inspect_shows_what_a_bundle_holds(run, library):
    manifest = library.manifest
    status, text = run("inspect", BUNDLED / manifest.name / str(manifest.version))
    assert status == 0
    for part in (
        f"{manifest.name}:{manifest.version}",
        ", ".join(kernel.name for kernel in manifest.softmax.kernels),
        f"{manifest.config.vocab_size} words",
        manifest.licence,
        "all checksums match",
        manifest.quality[0].metric,
    ):
        assert part in text


def test_inspect_names_the_graphs_for_devices(run):
    _, text = run("inspect", DE_EN)
    assert "graph for cuda encode.cuda.onnx" in text
    assert "graph for cuda step.cuda.onnx" in text


def test_inspect_takes_a_relative_path(run, bundle, monkeypatch):
    monkeypatch.chdir(bundle)
    assert run("inspect", ".")[0] == 0


def test_inspect_names_everything_that_is_wrong(run, bundle):
    (bundle / "weights.bin").unlink()
    (bundle / "score.onnx").write_bytes(b"")
    status, text = run("inspect", bundle)
    assert status == 1
    assert "weights.bin is missing" in text
    assert "score.onnx does not match its checksum" in text


@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff", b'{"format_version": 2}'])
def test_inspect_of_what_is_no_bundle(run, tmp_path, content):
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    status, text = run("inspect", tmp_path)
    assert status == 1
    assert text.startswith("wrong: ")


def test_inspect_names_the_bundles_there_are(run, copied_models):
    bundles = sorted(path.parent for path in copied_models.glob("*/*/manifest.json"))
    status, text = run("inspect", copied_models / "nope" / "1")
    assert status == 1
    there = ", ".join(map(str, bundles))
    assert text == f"wrong: {copied_models / 'nope' / '1'} does not exist; bundles in {copied_models}: {there}\n"
    for parent in (bundles[0].parent, copied_models):
        assert run("inspect", parent)[1].startswith(f"wrong: {parent} has no manifest.json; bundles in {parent}: ")


def test_inspect_where_there_are_no_bundles(run, tmp_path):
    _, text = run("inspect", tmp_path / "nope")
    there = f"there are no bundles in {tmp_path}; those of this installation are in {BUNDLED}"
    assert text == f"wrong: {tmp_path / 'nope'} does not exist; {there}\n"


# ---- flags and variables ----


def test_the_version_is_that_of_the_package(run):
    assert run("--version") == (0, f"softserve {metadata.version('softserve')}\n")


def test_help_shows_every_flag(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, text = run("serve", "--help")
    assert status == 0
    assert "SOFTSERVE_MAX_QUEUE_ITEMS" in text
    missing = [name for name in Settings.model_fields if f"--{name.replace('_', '-')}" not in text]
    assert missing == []


@pytest.mark.parametrize("flag", ["--starvation-limit-ms", "--max-overtaken-ms"])
def test_a_flag_that_was_renamed_goes_on_working(run, monkeypatch, flag):
    given = []
    monkeypatch.setattr(
        "service.server.process.serve", lambda settings: given.append(settings.starvation_limit_ms) or 0
    )
    assert run("serve", flag, "5") == (0, "")
    assert given == [5.0]


def test_help_names_the_commands(run):
    status, text = run("--help")
    assert status == 0
    assert all(command in text for command in ("serve", "inspect", "models"))


@pytest.mark.parametrize("arguments", [[], ["explode"], ["serve", "--no-such-flag"], ["inspect"]])
def test_unknown_commands_and_flags_are_refused(run, arguments):
    status, text = run(*arguments)
    assert status == 2
    assert text


@pytest.mark.parametrize("port", ["99999", "-1", "abc"])
def test_a_rubbish_port_is_named(run, port):
    status, text = run("serve", "--port", port)
    assert status != 0
    assert "port" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "abc"),
        ("PORT", "70000"),
        ("BACKEND", "tensorflow"),
        ("LOG_LEVEL", "loud"),
        ("MODELS", "next-word"),
        ("MODEL_DIRS", "/models"),
        ("MODEL_DIRS", "[]"),
    ],
)
def test_a_rubbish_variable_is_named(run, monkeypatch, name, value):
    monkeypatch.setenv(f"SOFTSERVE_{name}", value)
    status, text = run("serve")
    assert status == 1
    assert text.startswith("softserve: ")
    assert name.lower() in text.lower()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model-dirs", "/nowhere"], "softserve: model directory /nowhere does not exist"),
        (["--models", "nope"], "softserve: unknown model 'nope'; known models: de-en:"),
    ],
)
def test_what_cannot_be_served_is_said(run, arguments, text):
    status, said = run("serve", *arguments)
    assert status == 1
    assert text in said


def test_bench_says_where_it_is(run):
    expected = "softserve: bench is python -m benchmarks.load URL now, in a checkout of the repository\n"
    assert run("bench", "http://127.0.0.1:8000", "--rate", "5") == (2, expected)


def test_commands_do_not_import_the_server_or_an_http_client():
    code = "import sys, service.cli; sys.exit(bool({'aiohttp', 'rich', 'yarl'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def known_models():
    paths = sorted(path.parent for path in BUNDLED.glob("*/*/manifest.json"))
    return ", ".join(f"{path.parent.name}:{path.name}" for path in paths)


def test_an_interruption_is_known_behind_the_error_of_a_library(run, monkeypatch):
    def interrupted(*_):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ValueError("serialization failed")

    monkeypatch.setattr("service.cli._run", interrupted)
    assert run("score") == (130, "softserve: interrupted; complete lines were written\n")
