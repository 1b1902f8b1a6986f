"""Translation for protocols that ask for languages instead of models."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import Request

from models.operations.operation import always
from models.operations.translation import TranslateParams
from models.tasks.translation import TRANSLATE, MarkupQuery, Translation, TranslationQuery, Translator
from models.text.markup import PLAIN, Markup
from service.engine import languages
from service.engine.client import Job, Outcome
from service.engine.languages import LanguagePair
from service.http.requests import caller_of, engine_of

if TYPE_CHECKING:
    from service.store.glossaries import Loaded

__all__ = ["LanguagePair", "find_pair", "language_pairs", "translated"]

_BEAM_SIZE = 5


def language_pairs(request: Request) -> Sequence[LanguagePair]:
    """Return the language pairs of the served models, newest versions first; raises `NotReady` while models load."""
    engine = engine_of(request)
    return languages.language_pairs(engine.served_models, TRANSLATE, engine.settings.pivot_language)


def find_pair(
    request: Request,
    source: str | None,
    target: str | None,
    *,
    model: str | None = None,
    read: Callable[[], str] | None = None,
) -> LanguagePair:
    """Return the pair of a source and a target, each any without one, of any model or of one alone.

    Without a source, the language of the text that `read` returns decides among several models. Raises `QueryError`
    where there is none.
    """
    pairs = [pair for pair in language_pairs(request) if model is None or pair.models == (model,)]
    return languages.find_pair(pairs, source, target, read=read)


async def translated(
    request: Request,
    texts: Sequence[str],
    pair: LanguagePair,
    *,
    n_best: int = 1,
    seconds: float | None = None,
    prepare: Callable[[str], None] | None = None,
    join_lines: bool = False,
    split_sentences: bool = True,
    markup: Markup = PLAIN,
    glossary: "Loaded | None" = None,
) -> Outcome[Translation]:
    """Translate each text by beam search.

    `seconds` is a deadline instead of the one in the header. With `join_lines`, sentences may go on in the next line;
    without `split_sentences` a text, or a block of one with markup, is a single sentence. `glossary` has terms of the
    texts. `markup` is the format of the texts, and what of it is translated. `prepare` is called with each text, in
    order, once the texts are admitted and where they are tokenized: on another thread where they are many. Raises the
    errors of `Engine.run`.
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
    if glossary is not None:
        params = params.with_glossary(glossary.entries, glossary.terms)

    def query(
        model: Translator, text: str, params: TranslateParams, most_sentences: int | None
    ) -> TranslationQuery | MarkupQuery:
        if prepare is not None:
            prepare(text)
        return model.query(
            text,
            params.beam_size,
            options=params.options(),
            max_sentences=most_sentences,
            source_language=params.source_language,
            target_language=params.target_language,
            join_lines=join_lines,
            split_sentences=split_sentences,
            markup=markup,
            glossary=params.terms,
        )

    operation = TRANSLATE.with_query(
        query,
        slowly_prepared=lambda _: markup.format != "text" or glossary is not None,
        repeatable=always if prepare is None else None,
        variant=("sentences", join_lines, split_sentences, markup),
    )
    job = Job(operation=operation, inputs=texts, params=params, model=pair.model, caller=caller, through=pair.through)
    return await engine_of(request).run(job)
