"""MODEL_CARD.md of a bundle, written from what its manifest knows."""

from collections.abc import Mapping

import yaml

from models.manifest import Manifest, Quality

__all__ = ["model_card"]


def model_card(manifest: Manifest, *, differences: Mapping[str, float], references: Mapping[str, float]) -> str:
    """Markdown; `references` are perplexities of other models on the test split."""
    provenance, data = manifest.provenance, manifest.provenance.data
    kernels = ", ".join(_kernel(kernel.name, kernel.hyperparameters) for kernel in manifest.softmax.kernels)
    sources = "\n".join(f"* {source.name}: {source.licence}, <{source.homepage}>" for source in data)
    largest = ", ".join(f"{name} {difference:.1e}" for name, difference in differences.items())
    return f"""# {manifest.name}, version {manifest.version}

{manifest.description}

* Output layer: {f"mixture of {kernels}" if len(manifest.softmax.kernels) > 1 else kernels}
* Network: {manifest.network.num_layers}-layer LSTM, {manifest.network.hidden_size} hidden units, word vectors tied
* Vocabulary: {manifest.vocab_size} words, `<unk>` and the sentence end `</s>` included
* Licence of the model: {manifest.licence}
* Weights: {_weights(manifest)}

## Data

{sources}

## Quality

Perplexity per token, sentence ends included, `<unk>` counted like any word.

| model | data | split | perplexity |
| --- | --- | --- | --- |
{_quality_rows(manifest, references)}

Exported graphs against the trained module, largest difference of any output, float32: {largest}.

## Limits

Trained on short sentences; texts of up to {manifest.limits.max_tokens} tokens are accepted. It knows what its corpus
says and repeats the corpus's biases; it is no source of facts.

## Recipe

Exported on {provenance.date} after {provenance.training_seconds:.0f} s of training; code {provenance.git_revision}.

```yaml
{yaml.safe_dump(provenance.recipe, sort_keys=False).strip()}
```
"""


def _kernel(name: str, hyperparameters: Mapping[str, float]) -> str:
    values = ", ".join(f"{key} = {value:g}" for key, value in hyperparameters.items())
    return f"`{name}` ({values})" if values else f"`{name}`"


def _weights(manifest: Manifest) -> str:
    lossy = manifest.quantization
    if lossy is None:
        return "float32"
    return f"int8 ({lossy.metric} {lossy.value:.2f} against {lossy.float32_value:.2f} in float32)"


def _quality_rows(manifest: Manifest, references: Mapping[str, float]) -> str:
    rows = [_row("this model", quality) for quality in manifest.quality]
    test = next(quality for quality in manifest.quality if quality.split == "test")
    rows += [_row(name, test.model_copy(update={"value": value})) for name, value in references.items()]
    return "\n".join(rows)


def _row(model: str, quality: Quality) -> str:
    return f"| {model} | {quality.dataset} | {quality.split} | {quality.value:.2f} |"
