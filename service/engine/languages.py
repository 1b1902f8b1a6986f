"""Language pairs of the served models, direct ones and those through a third language."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from models import QueryError
from models.operations.operation import AnyOperation
from models.text.language import chosen_language
from models.text.language_codes import same_language, two_letters
from service.engine.served_model import ServedModel, names_of
from service.engine.served_models import NotReady, ServedModels

__all__ = ["ANY", "NONE", "LanguagePair", "Through", "find_pair", "language_pairs", "third_languages"]

ANY, NONE = "any", "none"
"""Settings of the third language besides codes."""
_USUAL = "en"
"""The third language that is preferred among several."""
_LISTED = 100
"""Language pairs that a message lists."""


@dataclass(frozen=True, slots=True)
class Through:
    """The first step of a pair through a third language."""

    model: str
    """`name:version` of the model that reads the source language."""
    written: str
    """The third language, spelled as in the manifest of this model."""
    read: str
    """The third language, spelled as in the manifest of the second model."""


@dataclass(frozen=True, slots=True)
class LanguagePair:
    """Two languages that a served model translates between, or two of them by way of a third language."""

    source: str
    target: str
    """The target language, spelled as in the model's manifest."""
    model: str
    """`name:version` of the model that writes the target language."""
    detected: bool = False
    """Whether the source is still to be detected: the model reads several, and none was asked for."""
    through: Through | None = None
    """The first step, where no model is direct."""

    @property
    def reader(self) -> str:
        """The model that reads the source language."""
        return self.model if self.through is None else self.through.model

    @property
    def via(self) -> str | None:
        """ISO 639 code of the third language."""
        return None if self.through is None else two_letters(self.through.written)

    @property
    def models(self) -> tuple[str, ...]:
        """All models, in the order of the steps."""
        return (self.model,) if self.through is None else (self.through.model, self.model)


def third_languages(setting: str) -> tuple[str, ...] | None:
    """Return the languages that pairs may go through, by the setting: codes, the preferred first; None for any."""
    if setting == ANY:
        return None
    return () if setting == NONE else tuple(two_letters(code.strip()) for code in setting.split(",") if code.strip())


def language_pairs(served_models: ServedModels, operation: AnyOperation, setting: str) -> Sequence[LanguagePair]:
    """Return the language pairs of the served models for an operation: direct ones, then those through a third.

    The newest version of a model goes first. `setting` says which third languages there may be. Raises `NotReady` while
    models load.
    """
    if not served_models.served and not served_models.ready:
        raise NotReady
    offering = [each for each in served_models.served.values() if operation.name in each.model.offers]
    offering.sort(key=lambda each: (each.key[0], -each.key[1]))
    found = tuple(_languages_of(each, operation) for each in offering)
    return _all_pairs(found, third_languages(setting))


_Languages = tuple[tuple[str, ...], tuple[str, ...], str]
"""Source and target languages of a model, and its name and version."""


def _languages_of(served: ServedModel, operation: AnyOperation) -> _Languages:
    between = operation.between_languages
    assert between is not None
    return tuple(between.sources(served.model)), tuple(between.targets(served.model)), names_of(served.key)[1]


@functools.lru_cache(64)
def _all_pairs(models: tuple[_Languages, ...], third: tuple[str, ...] | None) -> tuple[LanguagePair, ...]:
    direct = [pair for each in models for pair in _direct(*each)]
    return (*direct, *_through(direct, third))


def _direct(sources: Sequence[str], targets: Sequence[str], model: str) -> list[LanguagePair]:
    """Return all pairs of the languages of a model, without those of a language and itself where there are others."""
    pairs = [LanguagePair(source, target, model) for source in sources for target in targets]
    return [pair for pair in pairs if len(pairs) == 1 or not same_language(pair.source, pair.target)]


def _through(direct: Sequence[LanguagePair], third: tuple[str, ...] | None) -> list[LanguagePair]:
    """Return a pair for each source and target that two direct pairs lead between, and none directly."""
    known = {(two_letters(pair.source), two_letters(pair.target)) for pair in direct}
    firsts: dict[str, dict[str, LanguagePair]] = {}
    seconds: dict[str, dict[str, LanguagePair]] = {}
    for pair in direct:
        source, target = two_letters(pair.source), two_letters(pair.target)
        firsts.setdefault(target, {}).setdefault(source, pair)
        seconds.setdefault(source, {}).setdefault(pair.target, pair)
    shared = firsts.keys() & seconds.keys()
    order = sorted(shared, key=lambda code: (code != _USUAL, code)) if third is None else third
    found: dict[tuple[str, str], LanguagePair] = {}
    for language in order:
        for source, first in firsts.get(language, {}).items() if language in shared else ():
            for target, second in seconds[language].items():
                if two_letters(target) not in (source, language) and (source, two_letters(target)) not in known:
                    step = Through(first.model, first.target, second.source)
                    pair = LanguagePair(first.source, target, second.model, through=step)
                    found.setdefault((source, target), pair)
    return list(found.values())


def find_pair(
    pairs: Sequence[LanguagePair],
    source: str | None,
    target: str | None,
    *,
    read: Callable[[], str] | None = None,
) -> LanguagePair:
    """Return the pair of a source and a target, each any without one.

    Without a source, the language of the text that `read` returns decides among several pairs, where one of them reads
    it. Raises `QueryError` where there is none.
    """
    fitting = [pair for pair in pairs if source is None or same_language(pair.source, source)]
    for same in (str.__eq__, same_language):
        found = [pair for pair in fitting if target is None or same(pair.target, target)]
        if found:
            pair = found[0] if source is not None or read is None else _read_by(found, read)
            several = any(each.reader == pair.reader and each.source != pair.source for each in pairs)
            return replace(pair, detected=several and source is None)
    raise QueryError(_no_pair(pairs, source, target))


def _read_by(found: Sequence[LanguagePair], read: Callable[[], str]) -> LanguagePair:
    """Return the first pair that reads the language of a text, the first one where none does."""
    if len({each.models for each in found}) == 1:
        return found[0]
    sources = {two_letters(each.source) for each in found}
    language = chosen_language(read(), sources).expected
    return next((each for each in found if two_letters(each.source) == language), found[0])


def _no_pair(pairs: Iterable[LanguagePair], source: str | None, target: str | None) -> str:
    known = sorted({f"{two_letters(pair.source)} to {two_letters(pair.target)}" for pair in pairs})
    shown = ", ".join([*known[:_LISTED], *(["..."] if len(known) > _LISTED else [])])
    asked = "".join(f" {word} {code!r}" for word, code in (("from", source), ("to", target)) if code is not None)
    return f"no model translates{asked}; served: {shown or 'none'}"
