"""German sentences with parts that a translation must have byte for byte, in several positions and numbers."""

import random
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from models.text.protection import Kind

__all__ = ["ProtectedSentence", "protected_sentences"]

_TEMPLATES = (
    "Besuchen Sie {} für mehr Informationen.",
    "Ich habe {} gestern zum ersten Mal gesehen.",
    "{} ist sehr gut.",
    "Kannst du mir {} zeigen?",
    "Wenn du Zeit hast, sieh dir {} an und sag mir, was du denkst.",
    "Wir haben {} und {} bekommen.",
    "Zwischen {} und {} gibt es keinen Unterschied.",
    "Tom hat mir gesagt, dass {} nicht funktioniert.",
    "Bitte schicken Sie {} an meinen Bruder.",
    "Ich glaube, dass {} besser als {} ist.",
    "Hast du {} gefunden?",
    "Die Antwort steht in {}.",
    "Ohne {} geht es nicht.",
    "Maria fragte, ob {} neu ist.",
    "Mein Freund hat {}, {} und {} benutzt.",
    "Das ist {}.",
    "Warum hat er {} gelöscht?",
    "Morgen werde ich {} kaufen, weil ich {} nicht mag.",
    "Öffnen Sie zuerst {} und dann {}.",
    "Niemand weiß, was {} bedeutet.",
)
_WORDS = ("haus", "test", "daten", "shop", "news", "bild", "info", "konto", "server", "plan", "Bericht", "Foto")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtectedSentence:
    """A sentence and its parts, in order."""

    text: str
    parts: tuple[str, ...]
    kinds: tuple[Kind, ...]


def protected_sentences(count: int = 1000, seed: int = 1) -> list[ProtectedSentence]:
    """Return sentences of each template in turn, with parts of random kinds, no two the same in a sentence."""
    generator, kinds, found = random.Random(seed), list(_MAKERS), []
    for number in range(count):
        template = _TEMPLATES[number % len(_TEMPLATES)]
        chosen: list[Kind] = [generator.choice(kinds) for _ in re.findall("{}", template)]
        parts: list[str] = []
        for kind in chosen:
            part = _MAKERS[kind](generator)
            while any(part in other or other in part for other in parts):
                part = _MAKERS[kind](generator)
            parts.append(part)
        found.append(ProtectedSentence(text=template.format(*parts), parts=tuple(parts), kinds=tuple(chosen)))
    return found


def _word(generator: random.Random) -> str:
    return generator.choice(_WORDS)


def _digits(generator: random.Random, count: int) -> str:
    return "".join(generator.choices(string.digits, k=count))


def _letters(generator: random.Random, count: int) -> str:
    return "".join(generator.choices(string.ascii_uppercase, k=count))


def _url(generator: random.Random) -> str:
    path = f"/{_word(generator)}/{_digits(generator, 3)}?id={_digits(generator, 2)}#a"
    host = f"{_word(generator)}-{_word(generator)}.{generator.choice(['de', 'com', 'org'])}"
    return generator.choice([f"https://www.{host.lower()}", f"https://{host.lower()}{path}", f"http://{host.lower()}/"])


def _email(generator: random.Random) -> str:
    return f"{_word(generator)}.{_word(generator)}{_digits(generator, 2)}@{_word(generator).lower()}.de"


def _placeholder(generator: random.Random) -> str:
    name = f"{_word(generator).lower()}_{_digits(generator, 1)}"
    number = generator.randint(1, 9)
    forms = ["%d", "%s", f"%{number}$d", f"%{number}$s", f"{{{name}}}", f"{{{{{name}}}}}", f"${{{name}}}", f"<{name}/>"]
    return generator.choice([*forms, f"%({name})s", f"{{{number}}}", f"%.{number}f"])


def _file(generator: random.Random) -> str:
    name = f"{_word(generator)}_{_digits(generator, 4)}.{generator.choice(['pdf', 'txt', 'json', 'tar.gz', 'py'])}"
    return generator.choice([name, f"/etc/{_word(generator)}/{name}", f"C:\\{_word(generator)}\\{name}"])


def _version(generator: random.Random) -> str:
    numbers = f"{generator.randint(0, 20)}.{generator.randint(0, 20)}.{generator.randint(0, 20)}"
    return generator.choice([f"v{numbers}", f"{numbers}-rc{generator.randint(1, 9)}", f"v{generator.randint(1, 20)}.0"])


def _code(generator: random.Random) -> str:
    one, other = _letters(generator, 2), _digits(generator, 4)
    return generator.choice([f"{one}-{other}", f"{one}{other}", f"{_letters(generator, 1)}{other}", f"{other}-{one}-7"])


_MAKERS: Mapping[Kind, Callable[[random.Random], str]] = {
    "url": _url,
    "email": _email,
    "handle": lambda generator: f"@{_word(generator)}_{_digits(generator, 2)}",
    "hashtag": lambda generator: f"#{_word(generator)}{_digits(generator, 2)}",
    "iban": lambda generator: f"DE{_digits(generator, 2)} " + " ".join(_digits(generator, 4) for _ in range(4)) + " 00",
    "placeholder": _placeholder,
    "filename": _file,
    "version": _version,
    "code": _code,
    "measure": lambda generator: (
        f"{generator.randint(1, 99)},{_digits(generator, 2)} "
        + generator.choice(["kg", "km/h", "m", "kWh", "GB", "°C"])
    ),
}
