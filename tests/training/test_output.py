"""What commands of training print does not control the terminal."""

import io
import time

import pytest

from training import output
from training.output import alive, console, print_lines, shown_otherwise


def test_control_characters_are_spelled(capsys):
    console.print("a model: \x1b]0;title\x07\nnext line")
    print_lines(["name"], [["\x1b[31mred"]])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "a model: \\x1b]0;title\\x07\nnext line" in printed
    assert "\\x1b[31mred" in printed


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines about silence come a hundred times as soon."""
    monkeypatch.setattr(output, "_SILENCE", 0.05)
    monkeypatch.setattr(output._Silence, "text", lambda silence: "" if silence.paused else silence.line)


def test_a_silent_command_says_that_it_goes_on(capsys: pytest.CaptureFixture[str], quick: None) -> None:
    found, until = "", time.monotonic() + 10
    with alive():
        console.print("reading data")
        while found.count("reading data\n") < 3 and time.monotonic() < until:
            time.sleep(0.05)
            printed = capsys.readouterr()
            found += printed.out + printed.err
    assert found.count("reading data\n") >= 3, "the line itself, and twice that it goes on"


def test_another_display_is_not_disturbed(capsys: pytest.CaptureFixture[str], quick: None) -> None:
    with alive():
        console.print("training")
        with shown_otherwise():
            time.sleep(0.6)
    assert capsys.readouterr().err == ""


def test_the_time_since_the_last_line_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    console.print("two lines\nmeasuring what simple methods reach on the data " + 40 * "-")
    assert output._silence.text() == ""
    now = 107.4
    assert output._silence.text() == "measuring what simple methods reach on the data ---------...: 7 s"
    with shown_otherwise():
        assert output._silence.text() == ""
    now = 109.0
    assert output._silence.text() == "working: 2 s"


def test_a_terminal_shows_it_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(output, "progress", output._Console(force_terminal=True, file=terminal, soft_wrap=True))
    monkeypatch.setattr(output._Silence, "text", lambda silence: f"{silence.line}: 7 s")
    with alive():
        console.print("reading data")
        time.sleep(0.5)
    assert "reading data: 7 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K"), "the line is removed at the end"
