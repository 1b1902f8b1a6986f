"""MODEL_CARD.md of an imported model."""

from models.bundle.manifest import Manifest
from training.export.model_card import device_line
from training.importing.importer import ImportCard

__all__ = ["import_card"]


def import_card(manifest: Manifest, card: ImportCard, texts: int) -> str:
    """Return Markdown; `texts` is the number of sample texts that were compared."""
    source = manifest.provenance.source
    assert source is not None
    revision = "" if source.revision is None else f", revision {source.revision}"
    files = "\n".join(f"| `{name}` | `{checksum}` |" for name, checksum in source.files.items())
    return f"""# {manifest.name}, version {manifest.version}

{manifest.description}

* Imported on {manifest.provenance.date} from `{source.name}`{revision}; architecture {source.architecture}
* Network: {card.network}
* {card.outputs}
* Licence of the model: {manifest.licence}
* Weights: {_weights(manifest)}
{device_line(manifest)}
## Verification

Compared with {source.compared_with} on {texts} sample texts of several lengths, alone and in a batch: equal tokens,
largest difference of a log-probability, float32: {source.largest_difference:.1e}.

## Quality

The import measures no quality: see the model card of the source.{_agreement(manifest)}

## Limits

{card.limits}

## Source files

| file | sha256 |
| --- | --- |
{files}
"""


def _weights(manifest: Manifest) -> str:
    lossy = manifest.quantization
    return "float32" if lossy is None else f"int8 ({lossy.metric} {lossy.value:.4f})"


def _agreement(manifest: Manifest) -> str:
    if manifest.quantization is None:
        return ""
    lines = "\n".join(f"* {each.metric}: {each.value:.4f}" for each in manifest.quality)
    dataset = manifest.quantization.dataset
    return f" Agreement of int8 with float32 on {dataset}, not those\nthat activations were observed on:\n\n{lines}"
