"""The attention output of a decoder step, and the heads that align words."""

import shutil

import numpy as np
import onnx
import pytest

from models import ModelStore
from models.bundle.manifest import MANIFEST
from models.reading import load_manifest, parse_manifest, sha256_of
from models.store import load_bundle
from service.settings import BUNDLED
from tests.fixtures.bundled import DE_EN_VERSION
from training.bundling.attention_output import with_attention
from training.tasks.translation.alignment import add_alignment, known_links

PLACES = ["Berlin", "Hamburg", "Boston", "London", "Paris"]
TEXTS = [f"Tom hat {number} Bücher in {place} gekauft." for number in (3, 5, 12) for place in PLACES]


def test_names_and_numbers_that_are_there_once_are_known_links() -> None:
    assert known_links("Am 3. Mai war Tom in Rom.", "Tom was in Rome on May 3.") == {0: 5, 6: 1}
    assert known_links("Tom sah Tom.", "Tom saw Tom.") == {}


@pytest.fixture(scope="module")
def store():
    return ModelStore(BUNDLED)


@pytest.fixture(scope="module")
def plain(store, tmp_path_factory):
    """The bundled model as it was before it had an attention output."""
    directory = tmp_path_factory.mktemp("plain") / "de-en" / DE_EN_VERSION
    shutil.copytree(store.path("de-en"), directory)
    manifest = load_manifest(directory)
    for file in manifest.graphs["step"].files():
        model = onnx.load(directory / file, load_external_data=False)
        del model.graph.input[-1], model.graph.output[-1], model.graph.node[-1]
        onnx.save_model(model, directory / file)
    content = manifest.model_dump(mode="json")
    del content["graphs"]["step"]["inputs"][-1], content["graphs"]["step"]["outputs"][-1]
    content["config"]["alignment"] = None
    content["files"] |= {file: sha256_of(directory / file) for file in manifest.graphs["step"].files()}
    (directory / MANIFEST).write_text(parse_manifest(content).model_dump_json(), encoding="utf-8")
    return directory


def test_a_bundle_gets_the_output_and_keeps_weights_and_translations(plain, tmp_path) -> None:
    bundle = tmp_path / "de-en" / DE_EN_VERSION
    shutil.copytree(plain, bundle)
    weights, before = (bundle / "weights.bin").read_bytes(), load_bundle(plain, threads=1)
    heads = add_alignment(bundle, TEXTS)
    assert heads is not None
    assert heads.accuracy > 0.9
    assert (bundle / "weights.bin").read_bytes() == weights
    after = load_bundle(bundle, threads=1)
    assert after.translate(TEXTS) == before.translate(TEXTS)
    (found,) = after.translate([TEXTS[0]], alignment=True)
    (best,) = found.translations
    words = {(found.text[slice(*each.source)], best.text[slice(*each.target)]) for each in best.alignment}
    assert {("Tom", "Tom"), ("3", "3"), ("Bücher", "books"), ("Berlin", "Berlin")} <= words
    with pytest.raises(ValueError, match="has an attention output"):
        add_alignment(bundle, TEXTS)


def test_a_bundle_stays_as_it_is_where_too_few_links_are_known(plain, tmp_path) -> None:
    bundle = tmp_path / "de-en" / DE_EN_VERSION
    shutil.copytree(plain, bundle)
    assert add_alignment(bundle, ["Guten Morgen!"]) is None
    assert (bundle / "manifest.json").read_bytes() == (plain / "manifest.json").read_bytes()


def test_a_model_without_the_output_refuses_alignments(plain) -> None:
    with pytest.raises(ValueError, match=rf"alignment: the model de-en:{DE_EN_VERSION} has none"):
        load_bundle(plain).translate(["Hallo"], alignment=True)


def test_unknown_heads_are_refused(plain) -> None:
    step = onnx.load(plain / "step.onnx", load_external_data=False)
    with pytest.raises(ValueError, match="no head 4 in layer 0"):
        with_attention(step, [(0, 4)])
    with pytest.raises(ValueError, match="at least one head"):
        with_attention(step, [])


def test_attention_on_a_gpu_is_that_on_the_cpu(store) -> None:
    """The graph for GPUs computes products in float32."""
    text = "Maria hat 3 rote Äpfel gekauft."
    ours, theirs = (load_bundle(store.path("de-en"), graphs=graphs) for graphs in ("cpu", "cuda"))
    one, other = (each.translate([text], alignment=True)[0].translations[0] for each in (ours, theirs))
    assert one.text == other.text
    assert one.alignment == other.alignment
    assert np.all([each.target[1] <= len(one.text) for each in one.alignment])
