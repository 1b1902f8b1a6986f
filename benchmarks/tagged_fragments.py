"""German fragments of HTML, of templates: what stands in them, and where the tags are."""

import random
import re
from dataclasses import dataclass

__all__ = ["TaggedFragment", "tagged_fragments"]

_NAMES = ("Tom", "Mary", "Anna", "Peter", "John", "Paul", "Jack")
"""Names of people, and of places, that are the same in English."""
_PLACES = ("Boston", "Berlin", "London", "Paris", "Chicago", "Hamburg")
_TEMPLATES = (
    "<p>{N:b} hat {n:strong} Hunde.</p>",
    "<p>Ich habe {N:b} gestern in {P:i} gesehen.</p>",
    "<p>Das Buch kostet {n:b} Euro, und {N:em} hat es <i>sehr gern</i> gelesen.</p>",
    '<p>Lesen Sie <a href="/mehr?a=1&amp;b=2">mehr über {N:b}</a>.</p>',
    "<ul>\n  <li>{N:b} wohnt in {P:i}.</li>\n  <li>Er hat <em>zwei Katzen</em> &amp; {n:b} Hunde.</li>\n</ul>",
    "<table><tr><td>{n:b} Tage</td><td>Der Zug fährt um <b>14:30</b> Uhr.</td></tr></table>",
    "<div>Heute ist <span class='x'>das Wetter</span> schön.<br>{N:strong} geht mit <i>ihrem Hund</i> spazieren.</div>",
    "<h2>Willkommen in {P:span}!</h2><!-- Anfang --><p>Wir haben {n:b} neue <a href='#'>Bilder</a> für Sie.</p>",
    '<p>Gestern habe ich <img src="a.png" alt="Bild"> {N:b} angerufen.</p>',
    "<p><b>{N:i} kommt</b> morgen nicht, weil <u>seine Mutter</u> krank ist.</p>",
    "<p>Wenn du <i>Zeit</i> hast, dann besuche {N:b} in {P:a} und bleibe {n:strong} Tage.</p>",
    "<p>Tom sagt, dass <b>seine {n:i} Kinder</b> Deutsch lernen.</p>",
    "<blockquote><p>Ich weiß nicht, ob <em>{N:b} und {N:b}</em> Freunde sind.</p></blockquote>",
    "<p>Mein Bruder ist {n:b} Jahre alt. Er arbeitet <i>in einer <b>großen</b> Fabrik</i>. {N:u} kennt ihn.</p>",
    "<p>{N:b} hat den Befehl <code>ls -l</code> gestern benutzt.</p>",
    "<dl><dt>Preis</dt><dd>Es kostet <b>nur {n:i} Euro</b>.</dd></dl>",
    "<p>Das ist {N:b}. {N:i} hat {n:u}&nbsp;Euro &ndash; das ist <em>nicht viel</em>.</p>",
    '<p>Hast du <small>wirklich</small> {n:b} Äpfel <sup><a href="#f">*</a></sup> gegessen?</p>',
    "<section><h3>{N:em}</h3>Sie hat {n:b} Bücher <!-- viele --> geschrieben.</section>",
    "<p>{n:b} Menschen wissen, <a href='x'>wo {N:b} wohnt</a>, aber niemand sagt es.</p>",
    "<p>Im Jahr {n:b} zog {N:i} nach {P:b}.</p>",
    "<p class=lead>Ohne <a href='/p'>{N:b}</a> wäre das <strong>nie <em>möglich</em></strong> gewesen.</p>",
    "<ol><li><p>Öffnen Sie <i>das Fenster</i>.</p></li><li>Warten Sie {n:b} Minuten.</li></ol>",
    "<p>Warum hat {N:b} <span><i>das rote</i> Auto</span> verkauft<b>?</b></p>",
    '<p>Meine Schwester <b>und ich</b> haben {N:i} <span translate="no">Haus Grün</span> gezeigt.</p>',
)
"""`{N:b}` is the name of a person within a tag, `{P:b}` that of a place, `{n:b}` a number."""


@dataclass(frozen=True, slots=True)
class TaggedFragment:
    """A fragment of HTML with the texts that are alone in a tag: numbers and names, each of them once."""

    markup: str
    enclosed: tuple[tuple[str, str], ...]
    """The tag and the number or name."""


def tagged_fragments(count: int = 500, seed: int = 1) -> list[TaggedFragment]:
    """Return fragments of each template in turn; no name or number is twice in one."""
    generator = random.Random(seed)
    found = []
    for number in range(count):
        template = _TEMPLATES[number % len(_TEMPLATES)]
        found.append(_fragment(template, generator))
    return found


def _fragment(template: str, generator: random.Random) -> TaggedFragment:
    used: list[tuple[str, str]] = []
    markup = re.sub(r"\{(\w):(\w+)\}", lambda match: _filled(match, used, template, generator), template)
    return TaggedFragment(markup, tuple(used))


def _filled(match: re.Match[str], used: list[tuple[str, str]], template: str, generator: random.Random) -> str:
    taken = {word for _, word in used}
    free = [name for name in (_PLACES if match[1] == "P" else _NAMES) if name not in taken and name not in template]
    word = generator.choice(free)
    while match[1] == "n" and (word in taken or not word.isdigit()):
        word = str(generator.randint(1900, 2020) if "Jahr {" in template else generator.randint(3, 99))
    used.append((match[2], word))
    return f"<{match[2]}>{word}</{match[2]}>"
