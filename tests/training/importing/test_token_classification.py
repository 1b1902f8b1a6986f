"""Tests of imported models of token classification: their entities are those of transformers' pipeline."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import processors

from models.errors import BundleError, QueryError, TextTooLongError
from models.reading import sha256_of, validate
from models.store import load_bundle
from models.tasks.token_classification import Tagger, Tagging
from tests.support.tagger_bundle import LABELS
from tests.training.importing.conftest import Import, Source, import_directory, set_config
from training.importing.encoder_graph import EncoderModule
from training.importing.errors import ImportRefused
from training.importing.importer import ImportOptions
from training.importing.samples import Samples

FIELDS = {"id2label": dict(enumerate(LABELS)), "num_hidden_layers": 1}
ARCHITECTURES = (
    "BertForTokenClassification",
    "RobertaForTokenClassification",
    "XLMRobertaForTokenClassification",
    "DistilBertForTokenClassification",
    "ElectraForTokenClassification",
    "DebertaV2ForTokenClassification",
    "CamembertForTokenClassification",
    "AlbertForTokenClassification",
    "ModernBertForTokenClassification",
)
OF_TOKENIZERS = ARCHITECTURES[:3]
"""WordPiece, byte-level BPE, and a Unigram model of SentencePiece."""
SPECIAL = {"sep_token_id": 3, "cls_token_id": 2, "bos_token_id": 2, "eos_token_id": 3}
TEXTS = (
    "Where is my parcel? Frau Müller-Lüdenscheidt of Delivery & Co. wants it.",
    "I",
    "  Hello,  today\tMonday!I want to \nlive in San_Francisco",
    "Wie komme ich am schnellsten zum Bahnhof in Köln, naïve e\u0301tude 🙂👍🏽?",
    "今日はとても良い天気ですね。",
    "please call me back on 12 March 2021 at 14:30, or write to support@example.com",
)
LONG = "Frau Müller asked whether the film was better than I had expected; nobody answered her. " * 4


def fields(architecture: str) -> dict[str, Any]:
    return FIELDS | (SPECIAL if architecture.startswith("ModernBert") else {})


def loaded(path: Path) -> Tagger:
    model = load_bundle(path)
    assert isinstance(model, Tagger)
    return model


def pipeline_of(directory: Path, **options: Any) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory, model_max_length=options.pop("max_tokens", 10**9))
    model = transformers.AutoModelForTokenClassification.from_pretrained(directory)
    return transformers.pipeline("token-classification", model=model, tokenizer=tokenizer, **options)


def assert_same(found: Tagging, expected: Sequence[Mapping[str, Any]], text: str) -> None:
    key = "entity_group" if not expected or "entity_group" in expected[0] else "entity"
    assert [(each.label, each.start, each.end) for each in found.entities] == [
        (each[key], each["start"], each["end"]) for each in expected
    ]
    np.testing.assert_allclose(
        [each.score for each in found.entities], [float(each["score"]) for each in expected], atol=1e-4
    )
    assert [each.text for each in found.entities] == [text[each["start"] : each["end"]] for each in expected]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_log_probabilities_are_those_of_transformers(
    architecture: str, imported: Import, source: Source, original: Any
) -> None:
    bundle = imported(architecture, **fields(architecture))
    assert bundle.difference <= 1e-4
    assert validate(bundle.path) == []
    ours, theirs = loaded(bundle.path), original(architecture)
    assert ours.labels == LABELS
    tokenizer = transformers.AutoTokenizer.from_pretrained(source(architecture))
    encoded = [query.windows[0].encoded for query in ours.queries(TEXTS, truncate=True)]
    expected = tokenizer(list(TEXTS), truncation=True, max_length=ours.longest_input)["input_ids"]
    assert [list(found.tokens) for found in encoded] == expected
    together = ours.log_probabilities(encoded)
    for text, row in zip(encoded, together, strict=True):
        with torch.no_grad():
            scores = theirs(input_ids=torch.tensor([text.tokens])).logits[0].log_softmax(-1).numpy()
        np.testing.assert_allclose(row, scores, atol=1e-4)
        np.testing.assert_allclose(ours.log_probabilities([text])[0], scores, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "average", "max"])
@pytest.mark.parametrize("architecture", OF_TOKENIZERS)
def test_entities_are_those_of_the_pipeline(
    architecture: str, aggregation: Any, imported: Import, source: Source
) -> None:
    ours = loaded(imported(architecture, **fields(architecture)).path)
    theirs = pipeline_of(source(architecture), aggregation_strategy=aggregation, max_tokens=ours.longest_input)
    for ignored in (["O"], [], ["LOC", "B-LOC", "MISC"]):
        found = ours.tag(TEXTS, aggregation, ignore_labels=ignored, truncate=True)
        expected = [theirs(text, ignore_labels=ignored) for text in TEXTS]
        assert len({entity.label for each in found for entity in each.entities}) > 2
        for text, one, other in zip(TEXTS, found, expected, strict=True):
            assert_same(one, other, text)


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("overlap", [0, 5, 20])
@pytest.mark.parametrize("architecture", OF_TOKENIZERS)
def test_windows_are_those_of_the_pipeline(architecture: str, overlap: int, imported: Import, source: Source) -> None:
    ours = loaded(imported(architecture, **fields(architecture)).path)
    theirs = pipeline_of(
        source(architecture), aggregation_strategy="first", stride=overlap, max_tokens=ours.longest_input
    )
    if architecture.startswith("Roberta"):  # by default the first token of every window keeps the space before it
        processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
        theirs.tokenizer.backend_tokenizer.post_processor = processor
    (query,) = ours.queries([LONG], overlap=overlap)
    assert len(query.windows) > 2
    (found,) = ours.tag([LONG], "first", overlap=overlap)
    assert_same(found, theirs(LONG), LONG)
    assert_same(ours.tag([TEXTS[1]], "first", overlap=overlap)[0], theirs(TEXTS[1]), TEXTS[1])


def test_texts_that_are_too_long(imported: Import) -> None:
    ours = loaded(imported(ARCHITECTURES[0], **fields(ARCHITECTURES[0])).path)
    with pytest.raises(TextTooLongError, match="the model's limit is 48"):
        ours.tag([LONG])
    (cut,) = ours.tag([LONG], truncate=True)
    assert cut.truncated
    assert all(each.end < len(LONG) for each in cut.entities)
    for options, message in (
        ({"overlap": 46}, "overlap must be from 0 to 45, not 46"),
        ({"overlap": 3, "truncate": True}, "either overlap or truncate"),
        ({"overlap": 3, "aggregation": "none"}, "needs an aggregation"),
    ):
        with pytest.raises(QueryError, match=message):
            ours.tag([LONG], **options)  # type: ignore[arg-type]
    with pytest.raises(TextTooLongError, match="with this overlap"):
        ours.queries([LONG], overlap=5, max_windows=2)


def test_texts_without_entities(imported: Import) -> None:
    ours = loaded(imported(ARCHITECTURES[0], **fields(ARCHITECTURES[0])).path)
    assert [each.entities for each in ours.tag(["", " \t"])] == [(), ()]
    (every,) = ours.tag([TEXTS[0][:30]], "none")
    scores = sorted(each.score for each in every.entities)
    (some,) = ours.tag([TEXTS[0][:30]], "none", min_score=scores[1])
    assert [each.score for each in some.entities] == [each.score for each in every.entities if each.score >= scores[1]]
    assert len(some.entities) == len(scores) - 1


def test_a_bundle_of_other_labels_is_refused(imported: Import, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(imported(ARCHITECTURES[0], **fields(ARCHITECTURES[0])).path, tmp_path / "it" / "1"))
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    labels = "".join(f"{label}\n" for label in LABELS[1:])
    (bundle / "labels.txt").write_text(labels, encoding="utf-8")
    manifest["config"]["labels"]["count"] -= 1
    manifest["files"]["labels.txt"] = sha256_of(bundle / "labels.txt")
    (bundle / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(BundleError, match="does not give log_probabilities of 12 labels for each token"):
        load_bundle(bundle)


def test_int8(source: Source, tmp_path: Path) -> None:
    samples = Samples(TEXTS * 2, "texts.txt")
    architecture = ARCHITECTURES[0]
    found = import_directory(
        source(architecture, **fields(architecture)), tmp_path / "out", samples, quantization="int8"
    )
    assert validate(found.path) == []
    assert found.cost is not None
    assert 0 < found.cost.difference < 0.3
    assert 0.7 <= found.cost.value <= 1
    lossy = found.manifest.quantization
    assert lossy is not None
    assert (lossy.kind, lossy.metric) == ("int8-static", "tokens with the same label as float32")


def test_a_wrong_graph_is_not_written(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shifted(EncoderModule):
        def __init__(self, model: Any, head: Any, *, first_position: int, **options: Any) -> None:
            super().__init__(model, head, first_position=first_position - 1, **options)

    monkeypatch.setattr("training.importing.encoder.EncoderModule", Shifted)
    directory = source("RobertaForTokenClassification", **fields("RobertaForTokenClassification"))
    with pytest.raises(ImportRefused, match=r"a log-probability differs from that of transformers .* above 1e-04"):
        import_directory(directory, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id2label": {"0": "only"}}, "the model has 1 labels; train it again with 2 to 10000"),
        ({"id2label": {str(number): "a" for number in range(len(LABELS))}}, "a label twice"),
        ({"architectures": ["GPT2ForTokenClassification"]}, "GPT2ForTokenClassification is a causal model"),
    ],
)
def test_what_cannot_be_imported(changes: dict[str, Any], message: str, source: Source, tmp_path: Path) -> None:
    directory = source(ARCHITECTURES[0], **fields(ARCHITECTURES[0]))
    with pytest.raises(ImportRefused, match=message):
        import_directory(set_config(directory, **changes), tmp_path / "out", options=ImportOptions())
