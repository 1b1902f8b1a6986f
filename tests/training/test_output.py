"""What commands of training print does not control the terminal."""

from training.output import console, print_lines


def test_control_characters_are_spelled(capsys):
    console.print("a model: \x1b]0;title\x07\nnext line")
    print_lines(["name"], [["\x1b[31mred"]])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "a model: \\x1b]0;title\\x07\nnext line" in printed
    assert "\\x1b[31mred" in printed
