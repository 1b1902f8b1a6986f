"""Bills of materials of bundles: CycloneDX 1.6 in JSON, with the model card of a machine-learning model.

They are made of the manifest alone: its checksums, licences, data sets and measured quality.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from models.bundle.manifest import MANIFEST, DataSource, Manifest, Quality

__all__ = ["bill_of_materials"]

_SPDX = frozenset(
    {
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC-BY-2.0",
        "CC-BY-3.0",
        "CC-BY-4.0",
        "CC-BY-NC-4.0",
        "CC-BY-NC-SA-3.0",
        "CC-BY-NC-SA-4.0",
        "CC-BY-SA-3.0",
        "CC-BY-SA-4.0",
        "CC0-1.0",
        "GPL-3.0-only",
        "GPL-3.0-or-later",
        "LGPL-3.0-only",
        "MIT",
        "MPL-2.0",
        "Unlicense",
    }
)
"""Licences that CycloneDX takes by their identifier; any other is given by its name."""
_URL = re.compile(r"https?://[^\s<>\"{}|\\^`]+")
_NAMESPACE = uuid.UUID("5c4b1f6e-9d2b-4d53-8d61-0c1a9a0f6d10")
_MODEL = "model"


def bill_of_materials(manifest: Manifest, digest: str) -> dict[str, Any]:
    """Return the bill of materials of a bundle; `digest` is the sha256 of its manifest.

    The same manifest has the same bill, serial number and time included.
    """
    data = [_data_set(index, each) for index, each in enumerate(manifest.provenance.data)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": f"{manifest.provenance.date}T00:00:00Z",
            "tools": {
                "components": [{"type": "application", "name": "softserve", "version": metadata.version("softserve")}]
            },
            "component": _model(manifest, digest, [each["bom-ref"] for each in data]),
        },
        "components": data,
        "dependencies": [
            {"ref": _MODEL, "dependsOn": [each["bom-ref"] for each in data]},
            *({"ref": each["bom-ref"]} for each in data),
        ],
    }


def _model(manifest: Manifest, digest: str, data: Sequence[str]) -> dict[str, Any]:
    component = {
        "type": "machine-learning-model",
        "bom-ref": _MODEL,
        "name": manifest.name,
        "version": str(manifest.version),
        "description": manifest.description,
        "licenses": _licenses(manifest.licence),
        "hashes": _hashes(digest),
        "components": [_file(name, sha256) for name, sha256 in sorted({**manifest.files, MANIFEST: digest}.items())],
        "modelCard": _card(manifest, data),
        "properties": _properties(manifest),
    }
    if (source := manifest.provenance.source) is not None:
        ancestor = {"type": "machine-learning-model", "name": source.name, "description": source.architecture}
        component["pedigree"] = {
            "ancestors": [ancestor | ({"version": source.revision} if source.revision else {})],
        }
    return component


def _card(manifest: Manifest, data: Sequence[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {"task": manifest.task, "datasets": [{"ref": each} for each in data]}
    if (layer := manifest.softmax) is not None:
        kernels = ", ".join(layer.titles)
        parameters["modelArchitecture"] = f"output layer: {layer.distribution() or 'softmax'} of the kernels {kernels}"
    return {
        "modelParameters": parameters,
        "quantitativeAnalysis": {"performanceMetrics": [_metric(each) for each in manifest.quality]},
    }


def _metric(quality: Quality) -> dict[str, str]:
    return {"type": quality.metric, "value": f"{quality.value:.12g}", "slice": f"{quality.dataset}, {quality.split}"}


def _data_set(index: int, source: DataSource) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "data",
        "bom-ref": f"data-{index}",
        "name": source.name,
        "licenses": _licenses(source.licence),
        "data": [{"type": "dataset", "name": source.name}],
    }
    if _URL.fullmatch(source.homepage):  # others are words, such as `user's own files`
        component["externalReferences"] = [{"type": "website", "url": source.homepage}]
    return component


def _properties(manifest: Manifest) -> list[dict[str, str]]:
    facts: Mapping[str, object] = {
        "git_revision": manifest.provenance.git_revision,
        "format_version": manifest.format_version,
        **({"quantization": manifest.quantization.kind} if manifest.quantization is not None else {}),
    }
    return [{"name": f"softserve:{name}", "value": str(value)} for name, value in facts.items()]


def _file(name: str, sha256: str) -> dict[str, Any]:
    return {"type": "file", "bom-ref": f"file-{name}", "name": name, "hashes": _hashes(sha256)}


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]


def _licenses(licence: str) -> list[dict[str, Any]]:
    return [{"license": {"id" if licence in _SPDX else "name": licence}}]
