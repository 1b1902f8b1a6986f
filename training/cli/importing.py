"""`softserve-train import`: a model of another program becomes a bundle."""

from pathlib import Path
from typing import Annotated, Literal

import tyro
from pydantic import ValidationError
from rich.console import Console

from training.importing.errors import ImportRefused, described
from training.importing.samples import read_samples
from training.importing.source import SourceDirectory, open_source
from training.settings import QuantizationName

__all__ = ["import_model"]

console = Console()


def import_model(
    source: Annotated[str, tyro.conf.Positional],
    output: Path,
    name: str | None = None,
    version: int = 1,
    quantize: QuantizationName = "none",
    licence: str | None = None,
    description: str | None = None,
    texts: Path | None = None,
    max_tokens: int | None = None,
    languages: str | None = None,
    source_languages: str | None = None,
    target_languages: str | None = None,
    prefix: str | None = None,
    pooling: Literal["cls", "lasttoken", "max", "mean", "mean_sqrt_len_tokens", "weightedmean"] | None = None,
    force: bool = False,
) -> int:
    """Writes a bundle from a Hugging Face model directory or an ONNX file, compared with the original.

    Imported are encoders of transformers with classes (of texts, of pairs, and of tokens), with one number (rerankers,
    regression), and of sentence-transformers (embeddings); causal language models; and translation models, which are
    MarianMT (opus-mt), M2M100, NLLB, mBART-50, T5 and mT5: with weights in safetensors or pytorch_model.bin. ONNX
    files may be classifiers of texts or tokens, rerankers, and models of regression or of embeddings; they need a
    tokenizer.json in their directory. No code of a directory is run.

    Args:
        source: Directory, ONNX file, or hf:owner/name@revision to download from the Hugging Face Hub.
        output: Model directory; the bundle goes to <output>/<name>/<version>/.
        name: Name of the bundle; by default that of the directory, or the one that config.json states.
        version: Version of the bundle.
        quantize: With int8, matrix products are those of 8-bit integers; with int4, which is for causal language models
            only, their weights have 4 bits in blocks of 32. The agreement with float32 is printed.
        licence: Licence of the model, where its README.md does not state one; "unstated" if it is not known.
        description: Line that describes the model.
        texts: File of sample texts, one a line, such as the model will get: they are compared with the original, and
            set the ranges of int8. Some texts are built in. Of a file .tsv, with a label, a tab and a text on each
            line, classifiers get calibrated probabilities and prediction sets.
        max_tokens: Longest text in tokens; by default the longest that the model can read, 2,048 at most.
        languages: Source and target language of a translation model, such as de-en; of a model with several, the
            defaults.
        source_languages: Source languages that a bundle of a model with several has, separated by commas; by default
            all.
        target_languages: The same of the target languages.
        prefix: What asks a T5 or mT5 model for a translation, before each sentence, such as "translate English to
            German: "; by default as config.json states.
        pooling: How hidden states of an encoder without modules.json become a vector: it is imported as a model of
            embeddings. Of ONNX files, cls and mean.
        force: Replace a bundle of the same version.
    """
    opened = open_source(source)
    console.print(f"reading {opened.name}", highlight=False, soft_wrap=True)
    # With the compilers of ONNX, which take a second.
    from training.bundling.bundle import BundleSettings
    from training.importing.importer import ImportOptions, chosen_importer, write_imported

    samples = read_samples(texts)
    try:
        settings = BundleSettings(
            name=name or opened.default_name(),
            version=version,
            description=description or f"Imported from {opened.name}",
            licence=licence or _stated_licence(opened),
            quantization=quantize,
            force=force,
        )
    except ValidationError as error:
        raise ImportRefused(described(error)) from error
    options = ImportOptions(
        max_tokens=max_tokens,
        languages=languages,
        source_languages=source_languages,
        target_languages=target_languages,
        prefix=prefix,
        samples=samples,
        pooling=pooling,
    )
    importer = chosen_importer(opened)
    console.print(f"loading the model as {opened.onnx or opened.architecture}", highlight=False, soft_wrap=True)
    reader = importer(opened, options)
    imported = write_imported(reader, settings, output, console.print)
    console.print(f"largest difference of {reader.compared}: {imported.difference:.1e}", highlight=False)
    if (found := imported.cost) is not None:
        console.print(
            f"{quantize}: {found.metric} {found.value:.3f}, largest difference of {reader.quantity} "
            f"{found.difference:.3f}, {''.join(f'{name} {value:.2f}, ' for name, value in found.others.items())}"
            f"on {len(samples.held_out())} texts",
            highlight=False,
            soft_wrap=True,
        )
    console.print(f"wrote {imported.path}", soft_wrap=True)
    return 0


def _stated_licence(source: SourceDirectory) -> str:
    licence = source.licence()
    if licence is None:
        raise ImportRefused('no README.md states the licence of the model; say it by --licence, such as "unstated"')
    return licence
