"""Codes of languages: those of ISO 639 and of models, such as `de`, `deu`, `deu_Latn`, `de_DE` and `__de__`."""

import functools
from collections.abc import Iterable

__all__ = ["find_language", "same_language", "two_letters"]

_PAIRS = """
    aar aa abk ab afr af aka ak als sq amh am ara ar arb ar arg an asm as ava av ave ae aym ay ayr ay aze az azj az
    bak ba bam bm bel be ben bn bih bh bis bi bod bo bos bs bre br bul bg cat ca ces cs cha ch che ce chu cu chv cv
    cmn zh cor kw cos co cre cr cym cy dan da deu de div dv dzo dz ekk et ell el eng en epo eo est et eus eu ewe ee
    fao fo fas fa fij fj fil tl fin fi fra fr fry fy fuv ff ful ff gaz om gla gd gle ga glg gl glv gv grn gn guj gu
    hat ht hau ha hbs sh heb he her hz hin hi hmo ho hrv hr hun hu hye hy ibo ig ido io iii ii iku iu ile ie ina ia
    ind id ipk ik isl is ita it jav jv jpn ja kal kl kan kn kas ks kat ka kau kr kaz kk khk mn khm km kik ki kin rw
    kir ky kmr ku knc kr kom kv kon kg kor ko kua kj kur ku lao lo lat la lav lv lim li lin ln lit lt ltz lb lub lu
    lug lg lvs lv mah mh mal ml mar mr mkd mk mlg mg mlt mt mon mn mri mi msa ms mya my nau na nav nv nbl nr nde nd
    ndo ng nep ne nld nl nno nn nob nb nor no npi ne nso ns nya ny oci oc oji oj ori or orm om ory or oss os pan pa
    pbt ps pes fa pli pi plt mg pol pl por pt pus ps que qu quy qu roh rm ron ro run rn rus ru sag sg san sa sin si
    slk sk slv sl sme se smo sm sna sn snd sd som so sot st spa es sqi sq srd sc srp sr ssw ss sun su swa sw swe sv
    swh sw tah ty tam ta tat tt tel te tgk tg tgl tl tha th tir ti ton to tsn tn tso ts tuk tk tur tr twi tw uig ug
    ukr uk urd ur uzb uz uzn uz ven ve vie vi vol vo wln wa wol wo xho xh ydd yi yid yi yor yo zha za zho zh zsm ms
    zul zu
"""
_WORDS = _PAIRS.split()
_TWO_LETTERS = dict(zip(_WORDS[::2], _WORDS[1::2], strict=True))
"""ISO 639-1 codes by those of ISO 639-3, and by those of languages that models name in place of a macrolanguage."""
_SCRIPTS = {"cn": "hans", "sg": "hans", "tw": "hant", "hk": "hant", "mo": "hant"}
"""The script of Chinese by region."""


@functools.lru_cache(4096)
def two_letters(code: str) -> str:
    """Return the ISO 639-1 code of a language without region or script, or another code in lower case as it is."""
    plain = _plain(code).partition("_")[0]
    return _TWO_LETTERS.get(plain, plain)


def same_language(one: str, other: str) -> bool:
    """Return whether codes name the same language: `EN-GB`, `eng` and `en` do."""
    return two_letters(one) == two_letters(other)


def find_language(code: str, known: Iterable[str]) -> str | None:
    """Return the one of the known codes that a code stands for; None where there is none.

    The same code goes first, then one of the same script, or region, and then the first code of the same language. A
    code with a script stands for none with another.
    """
    spelled = {_plain(each): each for each in reversed(list(known))}
    wanted = _plain(code)
    if wanted in spelled:
        return spelled[wanted]
    language, (_, script) = two_letters(code), _parts(wanted)
    fitting = [plain for plain in reversed(spelled) if two_letters(plain) == language]
    same = [plain for plain in fitting if script and _parts(plain)[1] == script]
    others = [plain for plain in fitting if not (len(script) == len(_parts(plain)[1]) == 4)]
    return next((spelled[plain] for plain in [*same, *others]), None)


def _plain(code: str) -> str:
    return code.strip("_").replace("-", "_").lower()


def _parts(plain: str) -> tuple[str, str]:
    """Return language and script, or region."""
    language, _, rest = plain.partition("_")
    return language, _SCRIPTS.get(rest, rest) if two_letters(language) == "zh" else rest
