"""The commands as processes: streams, exit statuses, interruption."""

import os
import signal
import subprocess
import sys
import time

import pytest

from service.offline.computing import FIRST_WINDOW, WINDOW


def command(*arguments):
    return [sys.executable, "-m", "service.cli", *map(str, arguments)]


def run(*arguments, given=""):
    environment = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C"}
    return subprocess.run(
        command(*arguments), input=given, capture_output=True, encoding="utf-8", env=environment, check=False
    )


def test_texts_and_standard_input():
    found = run("next-word", "we had a very", "--top-k", "1")
    assert (found.returncode, found.stdout.split()[0]) == (0, "good")
    found = run("translate", given="Guten Morgen!\nSchöne Grüße\n")
    assert (found.returncode, found.stdout.splitlines()[0], len(found.stdout.splitlines())) == (0, "Good morning!", 2)
    found = run("classify", "--format", "jsonl", given='{"body": "play some music"}\n')
    assert found.stdout.startswith('{"text": "{')


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["next-word"], 2, "give a text"),
        (["score", "nothing.txt"], 2, "nothing.txt is no file"),
        (["score", "--text", "a", "--model", "intents"], 1, "not for score"),
        (["score", "--text", "a", "--model", "nope"], 1, "unknown model 'nope'"),
        (["score", "--text", "a", "--output", "x"], 2, "give texts on the command line, or files"),
        (["score", "--text", "a " * 5000], 1, "line 1"),
        (["score", "--wrong"], 2, "--wrong"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments, status, words):
    found = run(*arguments)
    assert found.returncode == status
    assert words in found.stderr
    assert "Traceback" not in found.stderr


def test_a_reader_that_ends_is_no_error(tmp_path):
    (tmp_path / "in.txt").write_text("a\n" * 20_000)
    score = command("score", tmp_path / "in.txt")
    with subprocess.Popen(score, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_an_interrupted_run_loses_and_doubles_no_line(tmp_path):
    texts = [f"i have {number} books and {'very ' * (number % 5)}much time" for number in range(WINDOW + 1000)]
    lines, output = "".join(f"{text}\n" for text in texts), tmp_path / "out.jsonl"
    arguments = ("score", "-", "--output", output, "--resume")
    with subprocess.Popen(command(*arguments), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdin.write(lines)
        process.stdin.flush()  # one window is complete, the next one waits for more
        end = time.monotonic() + 60
        while time.monotonic() < end and not (output.exists() and output.read_bytes().count(b"\n") == WINDOW):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert "interrupted" in process.stderr.read()
    assert process.returncode == 130
    with output.open("ab") as file:
        file.write(b'{"text": "i ha')
    assert run(*arguments, given=lines).returncode == 0
    assert [line.split('"')[3] for line in output.read_text(encoding="utf-8").splitlines()] == texts


@pytest.mark.parametrize(
    ("number", "lines_before"),
    [(signal.SIGINT, FIRST_WINDOW + 1), (signal.SIGKILL, 1), (signal.SIGKILL, FIRST_WINDOW + WINDOW + 1)],
)
def test_a_run_that_is_ended_anywhere_goes_on(tmp_path, number, lines_before):
    texts = [f"i have {number} books and {'very ' * (number % 5)}much time" for number in range(WINDOW + 1500)]
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    output = tmp_path / "out.jsonl"
    arguments = ("score", tmp_path / "in.txt", "--output", output, "--resume")
    with subprocess.Popen(command(*arguments), stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (output.exists() and output.read_bytes().count(b"\n") >= lines_before):
            time.sleep(0.002)
        process.send_signal(number)
        process.stderr.read()
    assert process.returncode in (0, 130, -number)
    before = output.read_bytes()
    assert before.count(b"\n") >= lines_before
    assert run(*arguments).returncode == 0
    assert output.read_bytes().startswith(before[: before.rindex(b"\n")])
    assert [line.split('"')[3] for line in output.read_text(encoding="utf-8").splitlines()] == texts
