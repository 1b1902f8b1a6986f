"""Detection of texts in another language than a model reads."""

import functools

from py3langid.langid import MODEL_FILE, LanguageIdentifier

__all__ = ["UNDETERMINED", "LanguageDetector"]

UNDETERMINED = "und"
"""Code of a language that was not determined (ISO 639-2)."""

_CHARACTERS = 1000
"""The start of a text that is looked at."""
_RULED_OUT = 0.003
"""Probability below which the expected language is ruled out; without any evidence each of 140 languages has 0.007.

Of 4,000 German training sentences of Tatoeba none is below it, of their English translations 90 %.
"""
_CERTAIN = 0.5
"""Probability from which another language is named."""


@functools.cache
def _identifier() -> LanguageIdentifier:
    """Return the identifier of all models: a naive Bayes classifier of byte n-grams that takes 76 MB."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class LanguageDetector:
    """Says which texts are not in the language that a model reads. Safe to call from several threads."""

    def __init__(self, expected: str) -> None:
        """`expected` is an ISO 639 code; a language that the detector does not know is never ruled out."""
        self._expected = expected
        self._known = expected in _identifier().labels

    def other_language(self, text: str) -> str | None:
        """Return the language of a text that is not in the expected one, `und` where it is unclear which.

        None for a text that may be in the expected language, such as a number or a single common word.
        """
        if not self._known:
            return None
        probabilities = dict(_identifier().rank(text[:_CHARACTERS]))
        if probabilities[self._expected] >= _RULED_OUT:
            return None
        best = max(probabilities, key=probabilities.__getitem__)
        return str(best) if probabilities[best] >= _CERTAIN else UNDETERMINED
