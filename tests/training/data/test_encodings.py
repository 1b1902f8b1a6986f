"""Encodings that are known by their bytes, and guesses of others."""

import codecs

import pytest

from training.data.encodings import is_guess, likely_encoding, spelled_by_guess
from training.data.inspection import inspect_file

RUSSIAN = "Где моя посылка? Заказ был сделан две недели назад\nКак изменить пароль в приложении?\n"
BULGARIAN = "Къде е моята пратка? Чакам вече две седмици, моля за помощ\nИскам да сменя паролата си\n"
POLISH = "Gdzie jest moja paczka? Czekam już dwa tygodnie, proszę o pomoc\nChcę zmienić hasło, zażółć gęślą jaźń\n"
CZECH = "Kde je moje zásilka? Čekám už dva týdny, prosím o pomoc\nNemohu se přihlásit ke svému účtu, žádám o heslo\n"
TURKISH = "Şifremi nasıl değiştirebilirim? Lütfen yardım edin\nSiparişim nerede? İki haftadır bekliyorum\n"
LITHUANIAN = "Kur yra mano siuntinys? Laukiu jau dvi savaites, ačiū už pagalbą\nNoriu pakeisti slaptažodį\n"
GREEK = "Πού είναι το δέμα μου; Περιμένω εδώ και δύο εβδομάδες\nΘέλω να αλλάξω τον κωδικό μου\n"
HEBREW = "איפה החבילה שלי? אני מחכה כבר שבועיים\nאני רוצה לשנות את הסיסמה שלי\n"
ARABIC = "أين طردي؟ أنتظر منذ أسبوعين\nأريد تغيير كلمة المرور\n"
THAI = "พัสดุของฉันอยู่ที่ไหน ฉันรอมาสองสัปดาห์แล้ว\nฉันต้องการเปลี่ยนรหัสผ่าน\n"
JAPANESE = "注文した商品がまだ届きません。いつ届きますか。\nパスワードを忘れました。変更する方法を教えてください。\n"
CHINESE = "我的包裹还没有到，请问什么时候能送到？\n我忘记了密码，怎么修改密码？\n"
TRADITIONAL = "我的包裹還沒有到，請問什麼時候能送到？\n我忘記了密碼，怎麼修改密碼？\n"
KOREAN = "비밀번호를 잊어버렸어요. 어떻게 변경하나요?\n주문한 상품이 아직 도착하지 않았습니다.\n"
GERMAN = "Wo ist mein Paket? Ich warte schon zwei Wochen, größere Verspätung\nIch möchte mein Passwort ändern\n"
FRENCH = "Où est mon colis ? J'attends déjà depuis deux semaines\nÇa a été créé – à bientôt, ça coûte 5 €\n"
SPANISH = "¿Dónde está mi paquete? Llevo esperando dos semanas\nQuiero cambiar mi contraseña, mañana\n"
SWEDISH = "Var är mitt paket? Jag har väntat i två veckor på det\nJag vill ändra mitt lösenord, tack så mycket\n"
ENGLISH = "where is my parcel, i paid £5\nit’s €7 in a café\ni want to change my password\n"


def labelled(text):
    """The text as the column of a file with English labels."""
    return "".join(f"account_question\t{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8_r"),
        (BULGARIAN, "cp1251"),
        (BULGARIAN, "koi8_r"),
        (POLISH, "cp1250"),
        (POLISH, "iso8859_2"),
        (CZECH, "cp1250"),
        (CZECH, "iso8859_2"),
        (TURKISH, "cp1254"),
        (LITHUANIAN, "cp1257"),
        (GREEK, "cp1253"),
        (HEBREW, "cp1255"),
        (ARABIC, "cp1256"),
        (THAI, "cp874"),
        (JAPANESE, "cp932"),
        (JAPANESE, "euc_jp"),
        (CHINESE, "gb18030"),
        (TRADITIONAL, "big5"),
        (KOREAN, "cp949"),
        *((text, "cp1252") for text in (GERMAN, FRENCH, SPANISH, SWEDISH, ENGLISH)),
        *(
            (text, encoding)
            for text in (RUSSIAN, JAPANESE, ENGLISH)
            for encoding in ("utf-16-le", "utf-16-be", "utf-8")
        ),
    ],
)
def test_a_text_is_in_the_encoding_that_it_was_written_in(text, encoding):
    for content in (text, labelled(text), labelled(text) * 20):
        assert likely_encoding(content.encode(encoding)) == encoding


def test_a_byte_order_mark_says_the_encoding():
    assert likely_encoding(codecs.BOM_UTF16_BE + RUSSIAN.encode("utf-16-be")) == "utf-16"


def test_a_null_character_makes_no_other_encoding():
    assert likely_encoding(b"one\0\ntwo\n") == "utf-8"
    assert likely_encoding(b"ab\0\ncd\n\n") == "utf-8"


def test_letters_of_western_europe_are_cp1252_or_latin_1():
    assert likely_encoding("schöne Grüße".encode("latin-1")) == "cp1252"
    assert likely_encoding("été déjà créé".encode("latin-1")) == "cp1252"
    assert likely_encoding(b"\x81 \xe9t\xe9") == "latin-1"


def test_long_texts_are_looked_at_in_part():
    content = "a plain line\n" * 200_000 + RUSSIAN
    assert likely_encoding(content.encode("cp1251")) in ("cp1252", "latin-1")
    assert likely_encoding((RUSSIAN * 20_000).encode("cp1251")) == "cp1251"


def test_words_show_a_guess():
    assert [is_guess(each) for each in ("utf-8", "utf-16", "utf-16-le", "cp1252", "cp1251")] == [False] * 3 + [True] * 2
    assert spelled_by_guess(iter(["a b", "größere 5 €", "où", *["schön"] * 9])) == ["größere", "où", "schön"]
    assert spelled_by_guess(["£5"]) == []


def test_a_guess_is_among_the_findings(tmp_path):
    rows = "".join(f"{('yes', 'no')[n % 2]};{line} {n}\n" for n, line in enumerate(RUSSIAN.splitlines() * 5))
    (tmp_path / "mails.csv").write_text(rows, encoding="cp1251")
    found = inspect_file(tmp_path / "mails.csv")
    assert found.encoding == "cp1251"
    first, doubt = found.lines()
    assert ", in the encoding cp1251" in first
    assert "is a guess: check words such as Где, моя, посылка, Заказ, был; data.files.encoding is for another" in doubt
    (tmp_path / "mails.csv").write_text(rows, encoding="utf-16-le")
    assert [line for line in inspect_file(tmp_path / "mails.csv").lines() if "is a guess" in line] == []
