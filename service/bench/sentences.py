"""The built-in texts of load tests: sentences of 1 to 40 words, one a line of `sentences.<language>.txt`."""

from pathlib import Path

__all__ = ["ENGLISH", "GERMAN"]


def _sentences(language: str) -> tuple[str, ...]:
    return tuple(Path(__file__).with_name(f"sentences.{language}.txt").read_text(encoding="utf-8").splitlines())


ENGLISH, GERMAN = _sentences("en"), _sentences("de")
