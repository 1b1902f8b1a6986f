"""The languages of imported translation models: which of them a bundle has, and which are its defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.tasks.translation import Languages
from models.text.language_codes import find_language
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions

__all__ = ["NamedLanguages", "language_pair"]

_LISTED = 12
"""Languages that a message lists."""


def language_pair(wanted: str) -> tuple[str, str]:
    """Return source and target of the option `--languages`; raises `ImportRefused`."""
    source, hyphen, target = wanted.partition("-")
    if not (source and hyphen and target):
        raise ImportRefused(f"--languages must be source and target such as de-en, not {wanted!r}")
    return source, target


@dataclass(frozen=True, slots=True)
class NamedLanguages:
    """The languages of a model that has a token for each."""

    tokens: Mapping[str, int]
    """The token of each language, by the model's own code."""
    source: str | None
    """The default source language that the directory states."""
    target: str | None
    """The same of the target."""

    def chosen(self, options: ImportOptions) -> Languages:
        """Return the languages of the bundle; raises `ImportRefused` for those that the model does not have.

        Without options all languages are sources and targets. English is the default where the directory states none.
        """
        pair = language_pair(options.languages) if options.languages else (None, None)
        sources = self._several(options.source_languages, "--source-languages")
        targets = self._several(options.target_languages, "--target-languages")
        source = self._default(pair[0], self.source, sources)
        target = self._default(pair[1], self.target, targets)
        try:
            return Languages(
                source=source,
                target=target,
                sources={code: self.tokens[code] for code in sources},
                targets={code: self.tokens[code] for code in targets},
                targets_begin_outputs=True,
            )
        except ValueError as error:
            raise ImportRefused(f"languages: {error}") from error

    def _several(self, wanted: str | None, option: str) -> list[str]:
        if wanted is None:
            return list(self.tokens)
        codes = [code.strip() for code in wanted.split(",") if code.strip()]
        if not codes:
            raise ImportRefused(f"{option} must be codes of languages, separated by commas, not {wanted!r}")
        return list(dict.fromkeys(self._known(code, list(self.tokens), option) for code in codes))

    def _default(self, wanted: str | None, stated: str | None, known: Sequence[str]) -> str:
        if wanted is not None:
            return self._known(wanted, known, "--languages")
        for code in (stated, "en"):
            if code is not None and (found := find_language(code, known)) is not None:
                return found
        return known[0]

    @staticmethod
    def _known(code: str, known: Sequence[str], option: str) -> str:
        if (found := find_language(code, known)) is None:
            shown = ", ".join([*known[:_LISTED], *(["..."] if len(known) > _LISTED else [])])
            raise ImportRefused(f"{option}: {code!r} is none of the model's languages: {shown}")
        return found
