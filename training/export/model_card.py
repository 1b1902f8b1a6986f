"""MODEL_CARD.md of a bundle, written from what its manifest knows."""

from collections.abc import Iterable, Mapping

import sacrebleu
import yaml

from models.bundle.manifest import DataSource, Manifest, SoftmaxLayer
from models.networks import BertNetwork, ImageNetwork, LstmNetwork, UnilmNetwork

__all__ = ["model_card"]


def model_card(manifest: Manifest, *, differences: Mapping[str, float], references: Mapping[str, float]) -> str:
    """Markdown; `references` are other models' values of the first metric on the test split."""
    provenance, data = manifest.provenance, manifest.provenance.data
    sources = "\n".join(_source(source) for source in data)
    largest = ", ".join(f"{name} {difference:.1e}" for name, difference in differences.items())
    return f"""# {manifest.name}, version {manifest.version}

{manifest.description}

* Output layer: {_output_layer(manifest.softmax, "words" if manifest.classes is None else "classes")}
* Network: {_network(manifest)}
* {_known(manifest)}
* Licence of the model: {manifest.licence}
* Weights: {_weights(manifest)}

## Data

{sources}

## Quality

{_quality(manifest, references)}

Exported graphs against the trained module, largest difference of any output, float32: {largest}.

## Limits

{_limits(manifest)}

## Recipe

Exported on {provenance.date} after {provenance.training_seconds:.0f} s of training; code {provenance.git_revision}.

```yaml
{yaml.safe_dump(provenance.recipe, sort_keys=False).strip()}
```
"""


def _source(source: DataSource) -> str:
    if not source.homepage.startswith("https://"):
        return f"* {source.name}: {source.licence}"
    return f"* {source.name}: {source.licence}, <{source.homepage}>"


def _network(manifest: Manifest) -> str:
    network = manifest.network
    if isinstance(network, LstmNetwork):
        return f"{network.num_layers}-layer LSTM, {network.hidden_size} hidden units, word vectors tied"
    if isinstance(network, BertNetwork):
        vector = "mean of its tokens' vectors" if network.pooling == "mean" else "vector of [CLS]"
        return (
            f"BERT encoder, {network.layers} layers, {network.hidden_size} hidden units, {network.heads} heads, "
            f"feed-forward {network.inner_size}; a text's vector is the {vector}"
        )
    if isinstance(network, UnilmNetwork):
        return (
            f"BERT encoder that also writes (UniLM), {network.layers} layers, {network.hidden_size} hidden units, "
            f"{network.heads} heads, feed-forward {network.inner_size}, word vectors tied"
        )
    if isinstance(network, ImageNetwork):
        size = network.image_size
        return f"{network.kind}, {network.hidden_size} hidden units, images brought to {size} x {size}"
    return (
        f"Transformer, {network.encoder_layers} + {network.decoder_layers} layers, {network.hidden_size} hidden units, "
        f"{network.heads} heads, feed-forward {network.inner_size}, {network.norm}-norm, word vectors tied"
    )


def _known(manifest: Manifest) -> str:
    if manifest.classes is not None:
        classes = f"Classes: {manifest.classes.count}, in `{manifest.classes.file}`"
        if manifest.tokenizer is not None:
            classes += f"\n* Vocabulary: {manifest.text.vocab_size} word pieces"
        return classes
    if manifest.task == "text-generation":
        return f"Vocabulary: {manifest.text.vocab_size} word pieces"
    tokens = "words" if manifest.task == "language-model" else "tokens of both languages"
    return f"Vocabulary: {manifest.text.vocab_size} {tokens}, `<unk>` and the sentence end `</s>` included"


def _limits(manifest: Manifest) -> str:
    if manifest.classes is not None:
        what, size = "image", f"{manifest.limits.max_pixels} pixels"
        if manifest.tokenizer is not None:
            what, size = "text", f"{manifest.text.max_tokens} word pieces"
        return f"""Each {what} may have up to {size}. It knows no class but its own: every {what} is given one
of them. It repeats the biases of what it was trained on."""
    count = manifest.text.max_tokens
    if manifest.task == "text-generation":
        longest = manifest.limits.max_output_tokens
        return f"""Texts of up to {count} word pieces are read, and up to {longest} are written. What it writes is often
wrong: it repeats the biases of its corpus, and is no source of facts."""
    texts = "texts" if manifest.task == "language-model" else "sentences"
    return f"""Trained on short sentences; {texts} of up to {count} tokens are accepted. It knows what its corpus
says and repeats the corpus's biases; it is no source of facts."""


def _output_layer(layer: SoftmaxLayer, unit: str) -> str:
    kernels = ", ".join(_kernel(kernel.name, kernel.hyperparameters) for kernel in layer.kernels)
    parts = [f"mixture of {kernels}" if len(layer.kernels) > 1 else kernels]
    if layer.untied is not None:
        matrices = "in full" if layer.untied == "full" else f"by corrections of rank {layer.untied}"
        parts.append(f"projection matrices untied {matrices}")
    if layer.sparse_k is not None:
        parts.append(
            f"sparse-softmax over the {layer.sparse_k} best {unit}{' of each' if len(layer.kernels) > 1 else ''}"
        )
    return "; ".join(parts)


def _kernel(name: str, hyperparameters: Mapping[str, float]) -> str:
    values = ", ".join(f"{key} = {value:g}" for key, value in hyperparameters.items())
    return f"`{name}` ({values})" if values else f"`{name}`"


def _weights(manifest: Manifest) -> str:
    lossy = manifest.quantization
    if lossy is None:
        return "float32"
    digits = 4 if manifest.classes is not None else 2
    values = [f"{value:.{digits}f}" for value in (lossy.value, lossy.float32_value)]
    return f"int8 ({lossy.metric} {values[0]} against {values[1]} in float32)"


def _quality(manifest: Manifest, references: Mapping[str, float]) -> str:
    """What was measured, in words and as a table with a column for each metric."""
    if manifest.task == "translation":
        return _translation_quality(manifest, references)
    if manifest.task == "text-generation":
        return _generation_quality(manifest, references)
    if manifest.classes is not None:
        return _classification_quality(manifest, references)
    text = "Perplexity per token, sentence ends included, `<unk>` counted like any word."
    columns = {"perplexity": "perplexity"}
    if manifest.softmax.sparse_k is not None:
        text += (
            " Coverage is the share of tokens whose probability is not 0, and perplexity that of those alone:"
            " over all tokens it is infinite where coverage is below 1."
        )
        columns = {"coverage": "coverage", "perplexity_of_covered": "perplexity of covered tokens"}
    # What references cover is everything.
    others = {
        name: {"perplexity": value, "coverage": 1.0, "perplexity_of_covered": value}
        for name, value in references.items()
    }
    return f"{text}\n\n{_table(manifest, columns, others)}"


def _translation_quality(manifest: Manifest, references: Mapping[str, float]) -> str:
    text = (
        "Of translations with beam size 5, detokenized and cased, by sacrebleu"
        f" (BLEU {_signature(sacrebleu.BLEU())}, chrF {_signature(sacrebleu.CHRF())})."
    )
    others = {name: {"BLEU": value} for name, value in references.items()}
    return f"{text}\n\n{_table(manifest, {'BLEU': 'BLEU', 'chrF': 'chrF'}, others)}"


def _generation_quality(manifest: Manifest, references: Mapping[str, float]) -> str:
    text = (
        "Of texts written with beam size 5, 0 to 100: F1 of ROUGE with stemming, best of a text's references, and"
        " unsmoothed BLEU of words and punctuation in lower case. Equal sources count once."
    )
    columns = {quality.metric: quality.metric for quality in manifest.quality}
    others = {name: {manifest.quality[0].metric: value} for name, value in references.items()}
    return f"{text}\n\n{_table(manifest, columns, others)}"


def _classification_quality(manifest: Manifest, references: Mapping[str, float]) -> str:
    text = (
        "Shares, 0 to 1. The calibration error is the expected one in 15 bins (Guo et al. 2017); out-of-scope AUROC"
        " says how well the largest probability tells texts of a class from texts of none."
    )
    assert manifest.classes is not None
    if manifest.classes.threshold is not None:
        text += f" Predicted are the best class and those of probability {manifest.classes.threshold:g} and more."
    columns = {quality.metric: quality.metric for quality in manifest.quality}
    others = {name: {manifest.quality[0].metric: value} for name, value in references.items()}
    return f"{text}\n\n{_table(manifest, columns, others, digits=4)}"


def _signature(metric: sacrebleu.BLEU | sacrebleu.CHRF) -> str:
    metric.corpus_score(["a"], [["a"]])  # it counts references only then
    return str(metric.get_signature())


def _table(
    manifest: Manifest, columns: Mapping[str, str], others: Mapping[str, Mapping[str, float]], digits: int = 2
) -> str:
    rows = [["model", "data", "split", *columns.values()], ["---"] * (3 + len(columns))]
    splits: dict[tuple[str, str], dict[str, float]] = {}
    for quality in manifest.quality:
        splits.setdefault((quality.dataset, quality.split), {})[quality.metric] = quality.value
    rows += [["this model", *where, *_numbers(columns, values, digits)] for where, values in splits.items()]
    dataset = manifest.quality[0].dataset
    rows += [[name, dataset, "test", *_numbers(columns, values, digits)] for name, values in others.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _numbers(columns: Iterable[str], values: Mapping[str, float], digits: int) -> list[str]:
    return [f"{values[column]:.{digits}f}" if column in values else "" for column in columns]
