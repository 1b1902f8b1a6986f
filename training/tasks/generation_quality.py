"""How good generated texts are: ROUGE and BLEU, 0 to 100."""

import statistics
from collections.abc import Sequence
from typing import Any

import sacrebleu
from rouge_score.rouge_scorer import RougeScorer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

__all__ = ["METRIC", "measured"]

METRIC = "ROUGE-L"
"""What models are selected by."""

_ROUGE = {"ROUGE-L": "rougeL", "ROUGE-1": "rouge1", "ROUGE-2": "rouge2"}
_LONGEST = 4

_normalizer, _pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()


def measured(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1 of ROUGE-L, ROUGE-1 and ROUGE-2 (Lin 2004) and BLEU-1 to BLEU-4 (Papineni et al. 2002).

    `references` are all texts that are right, for each output. ROUGE is the mean over outputs, with Porter's stemmer,
    of the best reference's. BLEU is of the corpus, unsmoothed. Neither minds case nor where spaces stand: for BLEU both
    sides are cut into words and punctuation as BERT does it. Raises `ValueError` where there is no output.
    """
    if not outputs:
        raise ValueError("outputs: there is none")
    scorer = RougeScorer(list(_ROUGE.values()), use_stemmer=True)
    scores = [scorer.score_multi(list(right), output) for output, right in zip(outputs, references, strict=True)]
    results = {name: 100 * statistics.fmean(each[key].fmeasure for each in scores) for name, key in _ROUGE.items()}
    words = [_words(output) for output in outputs]
    most = max(map(len, references))
    # sacrebleu takes None where a text has fewer references than another, whatever its annotation says.
    streams: list[Any] = [
        [_words(right[rank]) if rank < len(right) else None for right in references] for rank in range(most)
    ]
    for longest in range(1, _LONGEST + 1):
        bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", max_ngram_order=longest)
        results[f"BLEU-{longest}"] = bleu.corpus_score(words, streams).score
    return results


def _words(text: str) -> str:
    return " ".join(word for word, _ in _pre_tokenizer.pre_tokenize_str(_normalizer.normalize_str(text)))
