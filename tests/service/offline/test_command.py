"""The commands as processes: streams, exit statuses, interruption."""

import os
import signal
import subprocess
import sys
import time

import pytest

from models.store import BUNDLED
from service.offline.computing import FIRST_WINDOW, WINDOW


def command(*arguments):
    return [sys.executable, "-m", "service.cli", *map(str, arguments)]


def run(*arguments, given="", **variables):
    environment = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", **variables}
    content = given if isinstance(given, bytes) else given.encode()
    found = subprocess.run(command(*arguments), input=content, capture_output=True, env=environment, check=False)
    found.stdout, found.stderr = found.stdout.decode(), found.stderr.decode()
    return found


def test_texts_and_standard_input():
    found = run("next-word", "We had a very", "--top-k", "1")
    assert (found.returncode, found.stdout.split()[0]) == (0, "good")
    found = run("translate", given="Guten Morgen!\nSchöne Grüße\n")
    assert (found.returncode, found.stdout.splitlines()[0], len(found.stdout.splitlines())) == (0, "Good morning!", 2)
    found = run("classify", "--format", "jsonl", given='{"body": "play some music"}\n')
    assert found.stdout.startswith('{"text": "{')


def test_the_format_of_texts_is_not_that_of_the_output():
    found = run("translate", "--text", "<p>Guten Morgen!</p>", "--text-format", "html", "--format", "jsonl")
    assert "<p>Good morning!</p>" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["next-word"], 2, "give a text"),
        (["score", "nothing.txt"], 2, "nothing.txt is no file"),
        (["score", "--text", "a", "--model", "intents"], 1, "not for score"),
        (["score", "--text", "a", "--model", "nope"], 1, "unknown model 'nope'"),
        (["next-word", "a", "--file", "x"], 2, "give either texts on the command line, or the file x"),
        (["score", "--text", "a " * 5000], 1, "line 1"),
        (["score", "--wrong"], 2, "--wrong"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments, status, words):
    found = run(*arguments)
    assert found.returncode == status
    assert words in found.stderr
    assert "Traceback" not in found.stderr


def test_a_model_directory_leaves_the_arguments_after_it(tmp_path):
    found = run("next-word", "--model-dirs", BUNDLED, "we had a very", "--top-k", "1")
    assert (found.returncode, found.stdout.split()[0], found.stderr) == (0, "good", "")
    (tmp_path / "empty").mkdir()
    (tmp_path / "in.txt").write_text("see you tomorrow\n")
    found = run(
        "score",
        "--model",
        "next-word:4",
        "--model-dirs",
        tmp_path / "empty",
        "--model-dirs",
        BUNDLED,
        tmp_path / "in.txt",
    )
    assert (found.returncode, found.stdout) == (0, "-23.5282\t358.5400\tsee you tomorrow\n")
    found = run("models", "--model-dirs", BUNDLED, "show", "intents")
    assert (found.returncode, found.stderr) == (0, "")


def test_texts_of_the_command_line_go_to_a_file(tmp_path):
    arguments = ("score", "--model", "next-word:4", "--output", tmp_path / "out.tsv", "--text", "see you tomorrow")
    assert run(*arguments).returncode == 0
    assert "is there already: --resume goes on with it" in run(*arguments).stderr
    assert run(*arguments, "a book", "--resume").returncode == 0
    first, second = (tmp_path / "out.tsv").read_text().splitlines()
    assert first == "-23.5282\t358.5400\tsee you tomorrow"
    assert second.endswith("\ta book")


def test_bytes_that_are_not_utf_8():
    found = run("score", "--model", "next-word:4", given=b"gr\xfc\nsee you tomorrow\n")
    assert (found.returncode, len(found.stderr.splitlines())) == (1, 2)
    assert found.stderr.startswith("softserve: line 1: byte 3 is not UTF-8; --encoding is for another encoding")
    assert found.stdout.splitlines() == ["", "-23.5282\t358.5400\tsee you tomorrow"]
    found = run("score", "--encoding", "cp1252", given=b"gr\xfc\n")
    assert (found.returncode, found.stdout[-4:]) == (0, "grü\n")


@pytest.mark.parametrize("form", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_text(form):
    found = run("score", "--model", "next-word:4", given="see you tomorrow\n".encode(form))
    assert (found.returncode, found.stdout) == (0, "-23.5282\t358.5400\tsee you tomorrow\n")


def test_csv_is_read_as_records(tmp_path):
    (tmp_path / "in.csv").write_text('id;source\n1;"Guten Morgen!"\n2;"Guten Morgen!\nWie geht es dir?"\n')
    found = run("translate", tmp_path / "in.csv")
    assert (found.returncode, found.stdout) == (0, "Good morning!\nGood morning!\\nHow are you?\n")


def test_output_is_utf_8_in_any_locale():
    found = run("score", "--text", "grü", PYTHONIOENCODING="ascii")
    assert (found.returncode, found.stdout[-4:], found.stderr) == (0, "grü\n", "")


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
