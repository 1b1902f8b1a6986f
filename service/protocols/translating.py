"""Translation for protocols that ask for languages instead of models."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from fastapi import Request

from models import QueryError
from models.operations.translation import TranslateParams
from models.tasks.translation import TRANSLATE, MarkupQuery, Translation, TranslationQuery, Translator
from models.text.markup import PLAIN, Markup
from service.engine.client import Job, Outcome
from service.engine.served_model import ServedModel, names_of
from service.engine.served_models import NotReady, ServedModels
from service.http.requests import caller_of, engine_of
from service.protocols.languages import same_language, two_letters

__all__ = ["LanguagePair", "find_pair", "language_pairs", "translated"]

_BEAM_SIZE = 5
_LISTED = 100
"""Language pairs that a message lists."""


@dataclass(frozen=True, slots=True)
class LanguagePair:
    """Two languages that a served model translates between."""

    source: str
    target: str
    """The target language, spelled as in the model's manifest."""
    model: str
    """`name:version`"""
    detected: bool = False
    """Whether the source is still to be detected: the model reads several, and none was asked for."""


def language_pairs(request: Request) -> list[LanguagePair]:
    """Return the language pairs of the served models, newest versions first; raises `NotReady` while models load."""
    served_models: ServedModels = request.app.state.served_models
    if not served_models.served and not served_models.ready:
        raise NotReady
    return [pair for served in _translators(served_models.served.values()) for pair in _pairs_of(served)]


def _translators(served: Iterable[ServedModel]) -> list[ServedModel]:
    offering = [each for each in served if "translate" in each.model.offers]
    return sorted(offering, key=lambda each: (each.key[0], -each.key[1]))


def _pairs_of(served: ServedModel) -> tuple[LanguagePair, ...]:
    languages = served.model.config.languages
    others = [code for code in languages.known_targets() if code != languages.target]
    sources = [code for code in languages.known_sources() if code != languages.source]
    return _pairs((languages.source, *sources), (languages.target, *others), names_of(served.key)[1])


@functools.lru_cache(64)
def _pairs(sources: tuple[str, ...], targets: tuple[str, ...], model: str) -> tuple[LanguagePair, ...]:
    """Return all pairs of the languages of a model, without those of a language and itself where there are others."""
    pairs = [LanguagePair(source, target, model) for source in sources for target in targets]
    return tuple(pair for pair in pairs if len(pairs) == 1 or not same_language(pair.source, pair.target))


def find_pair(request: Request, source: str | None, target: str | None, *, model: str | None = None) -> LanguagePair:
    """Return the pair of a source and a target, each any without one, of any model or of one.

    Raises `QueryError` where no model has it.
    """
    pairs = [pair for pair in language_pairs(request) if model is None or pair.model == model]
    fitting = [pair for pair in pairs if source is None or same_language(pair.source, source)]
    for same in (str.__eq__, same_language):
        for pair in fitting:
            if target is None or same(pair.target, target):
                several = any(each.model == pair.model and each.source != pair.source for each in pairs)
                return replace(pair, detected=several and source is None)
    known = sorted({f"{two_letters(pair.source)} to {two_letters(pair.target)}" for pair in pairs})
    shown = ", ".join([*known[:_LISTED], *(["..."] if len(known) > _LISTED else [])])
    asked = "".join(f" {word} {code!r}" for word, code in (("from", source), ("to", target)) if code is not None)
    raise QueryError(f"no model translates{asked}; served: {shown or 'none'}")


async def translated(
    request: Request,
    texts: Sequence[str],
    pair: LanguagePair,
    *,
    n_best: int = 1,
    seconds: float | None = None,
    prepare: Callable[[str], None] | None = None,
    join_lines: bool = False,
    markup: Markup = PLAIN,
) -> Outcome[Translation]:
    """Translate each text by beam search.

    `seconds` is a deadline instead of the one in the header. With `join_lines`, sentences may go on in the next line.
    `markup` is the format of the texts, and what of it is translated. `prepare` is called with each text, in order,
    once the texts are admitted and where they are tokenized: on another thread where they are many. Raises the errors
    of `Engine.run`.
    """
    caller = caller_of(request)
    if seconds is not None:
        caller = replace(caller, timeout_ms=round(1000 * seconds))
    params = TranslateParams(
        beam_size=max(_BEAM_SIZE, n_best),
        n_best=n_best,
        source_language=None if pair.detected else pair.source,
        target_language=pair.target,
    )
    options = params.options()

    def query(
        model: Translator, text: str, params: TranslateParams, most_sentences: int | None
    ) -> TranslationQuery | MarkupQuery:
        if prepare is not None:
            prepare(text)
        return model.query(
            text,
            params.beam_size,
            options=options,
            max_sentences=most_sentences,
            source_language=params.source_language,
            target_language=params.target_language,
            join_lines=join_lines,
            markup=markup,
        )

    operation = TRANSLATE.with_query(query, slowly_prepared=lambda _: markup.format != "text")
    job = Job(operation=operation, inputs=texts, params=params, model=pair.model, caller=caller)
    return await engine_of(request).run(job)
