"""The import of M2M100, NLLB, mBART-50, T5 and mT5, against transformers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from fastapi.testclient import TestClient

from models import QueryError
from models.decoding.beam_search import SearchOptions
from models.decoding.sequence_to_sequence import SourceSequence
from models.reading import load_manifest, validate
from models.store import load_bundle
from models.tasks.translation import Translator
from service.server.app import create_app
from service.settings import Settings
from tests.fixtures.shared import shared_directory
from tests.support.marian_directory import SENTENCES
from tests.support.translation_directories import FAMILIES, write_directory
from tests.support.waiting import wait_until
from training.bundling.bundle import BundleSettings
from training.importing.errors import ImportRefused
from training.importing.importer import Importer, ImportOptions, chosen_importer, write_imported
from training.importing.samples import Samples
from training.importing.source import open_source

LIMIT = 24
"""Longest outputs of searches that are compared."""
OPTIONS: dict[str, dict[str, str]] = {
    "m2m100": {"source_languages": "en,de,fr", "target_languages": "de,__fr__,eng"},
    "nllb": {"source_languages": "en,deu_Latn,fr", "target_languages": "de,fra_Latn,en", "languages": "en-de"},
    "mt5": {"languages": "en-de", "prefix": "translate English to German: "},
}
"""Options of the import of each family."""
NAME, VERSION = "tiny", 1


def importer_of(directory: Path, **options: Any) -> Importer:
    source = open_source(str(directory))
    return chosen_importer(source)(source, ImportOptions(samples=Samples(SENTENCES, ""), **options))


def written(directory: Path, output: Path, *, int8: bool = False, **options: Any) -> Path:
    """Import a directory and return the path of the bundle."""
    settings = BundleSettings(
        name=NAME, version=VERSION, description="", licence="CC0", quantization="int8" if int8 else "none"
    )
    return write_imported(importer_of(directory, **options), settings, output).path


@pytest.fixture(scope="session")
def directory_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes the directory of a family, or returns the one that was made."""
    return lambda family: shared_directory(
        tmp_path_factory, f"{family}-directory", lambda path: write_directory(family, path)
    )


@pytest.fixture(scope="session")
def bundle_of(directory_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes the bundle of a family, or returns the one that was made."""

    def make(family: str) -> Path:
        found = shared_directory(
            tmp_path_factory,
            f"{family}-bundle",
            lambda path: written(directory_of(family), path, **OPTIONS.get(family, {})),
        )
        return found / NAME / str(VERSION)

    return make


def reference_of(directory: Path) -> Any:
    kind = json.loads((directory / "config.json").read_text())["architectures"][0]
    return getattr(transformers, kind).from_pretrained(directory).eval()


def sources(translator: Translator, beam: int = 1, n_best: int = 1) -> list[SourceSequence]:
    """Return searches for random sources of several lengths and languages."""
    generator, languages = np.random.default_rng(0), translator.config.languages
    found = []
    for number, length in enumerate(generator.integers(2, 40, 8)):
        read = languages.known_sources()[number % len(languages.known_sources())]
        target = languages.known_targets()[number % len(languages.known_targets())]
        ids = generator.integers(5, 150, length).tolist()
        options = SearchOptions(prefix=languages.forced(target), n_best=n_best)
        found.append(SourceSequence((*languages.prefix(target, read), *ids), beam, options, LIMIT))
    return found


def generated(reference: Any, query: SourceSequence, end: int, **options: Any) -> list[list[int]]:
    """Return the ids, without start and end, of what transformers generates, best first."""
    forced = query.options.prefix[0] if query.options.prefix else None
    output = reference.generate(
        torch.tensor([[*query.tokens, end]]),
        forced_bos_token_id=forced,
        forced_eos_token_id=None,
        num_beams=query.beam_size,
        num_return_sequences=query.options.n_best,
        do_sample=False,
        max_length=LIMIT + 1,
        **options,
    )
    rows = [row[1:] for row in output.tolist()]
    return [row[: row.index(end)] if end in row else row for row in rows]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bundle_is_sound_and_greedy_search_finds_what_transformers_does(family, bundle_of, directory_of):
    bundle = bundle_of(family)
    assert validate(bundle) == []
    assert load_manifest(bundle).provenance.source.largest_difference <= 1e-4
    translator, reference = load_bundle(bundle), reference_of(directory_of(family))
    queries, end = sources(translator), translator.config.special_tokens.end
    together = [list(each[0].tokens) for each in translator.decoder.search(queries)]
    assert together == [list(translator.decoder.search([query])[0][0].tokens) for query in queries]
    assert together == [generated(reference, query, end)[0][:LIMIT] for query in queries]
    assert len(set(map(tuple, together))) > len(together) / 2  # outputs depend on the source
    assert np.mean([len(set(tokens)) for tokens in together]) > 2  # and on the position


@pytest.mark.parametrize("family", ["mbart50", "t5"])
def test_beam_search_finds_what_transformers_does(family, bundle_of, directory_of):
    """Hypotheses that are taken up again read slots of the caches that are not in the order of positions."""
    translator, reference = load_bundle(bundle_of(family)), reference_of(directory_of(family))
    end, compared = translator.config.special_tokens.end, 0
    queries = sources(translator, beam=4)
    for query, found in zip(queries, translator.decoder.search(queries), strict=True):
        expected = generated(reference, query, end, early_stopping="never", length_penalty=1.0)[0]
        if len(expected) < LIMIT:  # what the limit cuts off ranks behind what ended, here alone
            assert list(found[0].tokens) == expected
        compared += 1
    assert compared == len(queries)
    scores = [
        _log_probability(reference, query, found[0], translator) - found[0].log_probability
        for query, found in zip(queries, translator.decoder.search(queries), strict=True)
    ]
    assert np.abs(scores).max() < 1e-3


@torch.no_grad()
def _log_probability(reference: Any, query: SourceSequence, found: Any, translator: Translator) -> float:
    """Return the log-probability of an output by transformers."""
    special, ended = translator.config.special_tokens, len(found.tokens) < LIMIT
    target = [*found.tokens, *([special.end] if ended else [])]
    logits = reference(
        input_ids=torch.tensor([[*query.tokens, special.end]]),
        decoder_input_ids=torch.tensor([[special.start, *target[:-1]]]),
    ).logits[0]
    each = logits.log_softmax(-1)[torch.arange(len(target)), torch.tensor(target)]
    return float(each[len(query.options.prefix) :].sum())


@pytest.mark.parametrize("family", ["m2m100", "nllb"])
def test_a_bundle_has_the_languages_that_are_wanted(family, bundle_of):
    translator = load_bundle(bundle_of(family))
    languages = translator.config.languages
    codes = ["en", "de", "fr"] if family == "m2m100" else ["eng_Latn", "deu_Latn", "fra_Latn"]
    assert sorted(languages.known_sources()) == sorted(languages.known_targets()) == sorted(codes)
    summary = translator.config.summary()["languages"]
    assert set(summary["sources"]) == set(summary["targets"]) == set(codes)
    tokens = {code: languages.sources[code] for code in codes}
    for code, source in zip(("de", "en-GB", "__fr__"), (codes[1], codes[0], codes[2]), strict=True):
        (part,) = translator.query("Haus", source_language=code, target_language=codes[2]).parts()
        assert part.tokens[0] == tokens[source]
        assert part.options.prefix == (tokens[codes[2]],)
    with pytest.raises(QueryError, match=r"source_language must be one of .*, not 'ja'"):
        translator.query("Haus", source_language="ja")
    with pytest.raises(QueryError, match=r"target_language must be one of .*, not 'ja'"):
        translator.query("Haus", target_language="ja")


def test_the_source_language_is_detected(bundle_of):
    translator = load_bundle(bundle_of("nllb"))
    texts = {
        "deu_Latn": "Morgen werden wir ins Museum gehen, wenn es regnet.",
        "fra_Latn": "Nous avons acheté du pain, du fromage et trois bouteilles de vin.",
        "eng_Latn": "Where is the station, and when does the next train leave?",
    }
    for code, text in texts.items():
        (found,) = translator.translate([text], 1, target_language="de")
        assert found.source_language == code
        assert found.detected_language is None
    (found,) = translator.translate(["Завтра мы пойдём в музей, если будет дождь."], 1)
    assert (found.detected_language, found.low_confidence) == ("ru", True)
    (found,) = translator.translate(["123"], 1)
    assert found.source_language == "eng_Latn"


def test_all_languages_are_imported_by_default(directory_of):
    importer = importer_of(directory_of("nllb"))
    languages = importer.config()["languages"]
    assert len(languages["sources"]) == len(languages["targets"]) == 202
    assert languages["source"] == languages["target"] == "eng_Latn"


def test_prompts_ask_t5_for_the_target_language(bundle_of, directory_of):
    translator = load_bundle(bundle_of("t5"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory_of("t5"))
    assert translator.config.languages.known_targets() == ("de", "fr", "ro")
    for code, name in (("de", "German"), ("fra", "French")):
        (part,) = translator.query("We will go home.", target_language=code).parts()
        assert [*part.tokens, 1] == tokenizer(f"translate English to {name}: We will go home.")["input_ids"]
    assert translator.translate(["</s> <extra_id_0> a house"], 1)[0].translations[0].text


def test_int8_translates_much_as_float32(directory_of, tmp_path):
    options = {"source_languages": "en,de", "target_languages": "de,fr"}
    bundle = written(directory_of("m2m100"), tmp_path, int8=True, **options)
    manifest = load_manifest(bundle)
    assert (manifest.quantization.kind, manifest.quantization.metric) == ("int8-static", "equal greedy translations")
    assert load_bundle(bundle).translate(["A house."], 2)[0].translations[0].text


def test_the_service_translates_between_all_languages(bundle_of):
    text, bundle = "Where is the station?", bundle_of("nllb")
    library = load_bundle(bundle, threads=1)
    with TestClient(create_app(Settings(model_dirs=(bundle.parents[1],), threads=1))) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        texts = set()
        for code in ("de", "fra_Latn", "en"):
            answer = client.post(
                "/v1/translate", json={"text": text, "source_language": "en", "target_language": code}
            ).json()
            (expected,) = library.translate([text], source_language="eng_Latn", target_language=code)
            assert answer["results"][0]["translations"][0]["text"] == expected.translations[0].text
            assert answer["results"][0]["source_language"] == "eng_Latn"
            texts.add(expected.translations[0].text)
        assert len(texts) > 1
        assert client.post("/v1/translate", json={"text": text, "target_language": "ja"}).status_code == 422
        listed = client.get("/languages").json()
        assert {each["code"] for each in listed} == {"de", "en", "fr"}
        assert {each["code"]: sorted(each["targets"]) for each in listed}["de"] == ["en", "fr"]
        deepl = client.post(
            "/v2/translate", json={"text": ["Wir gehen morgen ins Museum."], "target_lang": "FR"}
        ).json()
        assert deepl["translations"][0]["detected_source_language"] == "DE"


# ---- refusals ----


@pytest.mark.parametrize(
    ("family", "file", "fields", "message"),
    [
        ("mbart50", "config.json", {"activation_function": "tanh"}, "activation_function"),
        ("mbart50", "config.json", {"normalize_before": False}, "normalize_before"),
        ("mbart50", "config.json", {"decoder_layers": 2}, "lack model.decoder.layers.1"),
        ("mbart50", "config.json", {"eos_token_id": 7}, "</s> is not token 7"),
        ("nllb", "tokenizer_config.json", {"legacy_behaviour": True}, "legacy_behaviour"),
        ("t5", "config.json", {"feed_forward_proj": "gated-tanh"}, "feed_forward_proj"),
        ("t5", "config.json", {"task_specific_params": None}, "say the languages by --languages"),
        ("t5", "config.json", {"vocab_size": 100}, "tokens more than vocab_size"),
        ("t5", "config.json", {"architectures": ["LongT5ForConditionalGeneration"]}, "LongT5.* cannot be imported"),
    ],
)
def test_what_is_not_supported_is_named(directory_of, tmp_path, family, file, fields, message):
    copy = tmp_path / "copy"
    shutil.copytree(directory_of(family), copy)
    content = json.loads((copy / file).read_text()) | fields
    (copy / file).write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    with pytest.raises(ImportRefused, match=message):
        importer_of(copy).read_model()


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("nllb", {"target_languages": "de,tlh"}, "--target-languages: 'tlh' is none"),
        ("nllb", {"source_languages": " , "}, "--source-languages must be codes"),
        ("nllb", {"languages": "en-tlh"}, "--languages: 'tlh' is none"),
        ("nllb", {"prefix": "translate: "}, "--prefix is for T5"),
        ("t5", {"prefix": "translate: "}, "--prefix needs --languages"),
        ("t5", {"languages": "de-en"}, "has prompts for en-de, en-fr, en-ro"),
        ("t5", {"source_languages": "en"}, "--source-languages is for models"),
        ("t5", {"max_tokens": 1024}, "--max-tokens must lie between 1 and"),
    ],
)
def test_options_that_do_not_fit_are_refused(directory_of, family, options, message):
    with pytest.raises(ImportRefused, match=message):
        importer_of(directory_of(family), **options)
