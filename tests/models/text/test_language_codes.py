import pytest

from models.text.language_codes import find_language, same_language, two_letters

NLLB = ("arb_Arab", "deu_Latn", "eng_Latn", "srp_Cyrl", "zho_Hans", "zho_Hant")
MBART = ("de_DE", "en_XX", "pt_XX", "zh_CN")


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("deu_Latn", "deu_Latn"),
        ("de", "deu_Latn"),
        ("DE-AT", "deu_Latn"),
        ("deu", "deu_Latn"),
        ("__de__", "deu_Latn"),
        ("de_DE", "deu_Latn"),
        ("ar", "arb_Arab"),
        ("zh", "zho_Hans"),
        ("zh-TW", "zho_Hant"),
        ("zh-Hant", "zho_Hant"),
        ("zh_CN", "zho_Hans"),
        ("sr", "srp_Cyrl"),
        ("srp_Latn", None),
        ("fr", None),
        ("", None),
    ],
)
def test_codes_of_protocols_stand_for_those_of_a_model(code, found):
    assert find_language(code, NLLB) == found


@pytest.mark.parametrize(
    ("code", "found"), [("pt-BR", "pt_XX"), ("deu_Latn", "de_DE"), ("eng", "en_XX"), ("zh", "zh_CN")]
)
def test_regions_do_not_matter(code, found):
    assert find_language(code, MBART) == found


def test_two_letters_of_individual_languages():
    codes = ["swh_Latn", "pes_Arab", "nob", "ceb_Latn", "__de__", "pt_BR"]
    assert [two_letters(code) for code in codes] == ["sw", "fa", "nb", "ceb", "de", "pt"]
    assert same_language("EN-GB", "eng_Latn")
    assert not same_language("eng", "deu")
