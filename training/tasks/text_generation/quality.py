"""Quality of generated texts: ROUGE and BLEU, 0 to 100."""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import sacrebleu
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from models.decoding.beam_search import SearchOptions
from models.tasks.text_generation import Generator
from training.tasks.examples import Examples, Measurement, mean
from training.tasks.text_generation.reading import SourceTargets

__all__ = ["METRIC", "bundle_generation", "measured"]

METRIC = "ROUGE-L"
"""The metric that models are selected by."""

_ROUGE = {"ROUGE-L": "rougeL", "ROUGE-1": "rouge1", "ROUGE-2": "rouge2"}
_LONGEST = 4
_SHORT = 3
"""Letters of words that are not stemmed."""

_normalizer, _pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()


def measured(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Measurement:
    """Return F1 of ROUGE-L, ROUGE-1 and ROUGE-2 (Lin 2004) and BLEU-1 to BLEU-4 (Papineni et al. 2002).

    `references` are all texts that are right, for each output. Both sides are cut into words and punctuation as BERT
    does it, so that neither case nor accents nor where spaces stand counts. ROUGE is the mean over outputs of the best
    reference's, of words alone, which Porter's stemmer shortens (as `rouge_score` does, but in any script). BLEU is of
    the corpus, unsmoothed. Raises `ValueError` where there is no output.
    """
    if not outputs:
        raise ValueError("outputs: there is none")
    from rouge_score.rouge_scorer import RougeScorer  # it imports NLTK, which takes seconds

    scorer = RougeScorer(list(_ROUGE.values()), tokenizer=_Stems())
    scores = [scorer.score_multi(list(right), output) for output, right in zip(outputs, references, strict=True)]
    results = {name: 100 * statistics.fmean(each[key].fmeasure for each in scores) for name, key in _ROUGE.items()}
    words = [" ".join(_words(output)) for output in outputs]
    most = max(map(len, references))
    # sacrebleu takes None where a text has fewer references than another, whatever its annotation says.
    streams: list[Any] = [
        [" ".join(_words(right[rank])) if rank < len(right) else None for right in references] for rank in range(most)
    ]
    for longest in range(1, _LONGEST + 1):
        bleu = sacrebleu.BLEU(tokenize="none", force=True, smooth_method="none", max_ngram_order=longest)
        results[f"BLEU-{longest}"] = bleu.corpus_score(words, streams).score
    rouge_l = [100 * each[_ROUGE[METRIC]].fmeasure for each in scores]
    return Measurement(results, Examples(np.stack([rouge_l, np.ones(len(rouge_l))], 1), mean))


def bundle_generation(
    model: Generator, texts: Sequence[SourceTargets], beam_size: int = 5, *, options: SearchOptions | None = None
) -> dict[str, float]:
    """Return the metrics of a loaded bundle's outputs, by the same code that serves it."""
    results = model.generate([text.source for text in texts], beam_size, options=options, truncate=True)
    outputs = [result.outputs[0].text for result in results]
    return dict(measured(outputs, [text.targets for text in texts]).metrics)


def _words(text: str) -> list[str]:
    return [word for word, _ in _pre_tokenizer.pre_tokenize_str(_normalizer.normalize_str(text))]


class _Stems:
    """The stems that ROUGE counts."""

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self._stemmer = PorterStemmer()

    def tokenize(self, text: str) -> list[str]:
        words = [word for word in _words(text) if any(map(str.isalnum, word))]
        return [self._stemmer.stem(word) if len(word) > _SHORT else word for word in words]
