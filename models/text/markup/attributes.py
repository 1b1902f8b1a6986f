"""Attributes of HTML whose values people see or hear: those that the HTML standard calls translatable, and those of
WAI-ARIA, but for values that programs read too.
"""

from collections.abc import Iterator, Mapping

from models.text.markup.tokens import Attribute, Token

__all__ = ["SHOWN_METADATA", "shown_attributes"]

_OF_ANY = frozenset(
    {
        "title",
        "alt",
        "placeholder",
        "aria-description",
        "aria-label",
        "aria-placeholder",
        "aria-roledescription",
        "aria-valuetext",
    }
)
_OF_SOME = {"label": frozenset({"option", "optgroup", "track"}), "abbr": frozenset({"th"})}
_NAMING = frozenset({"link", "style"})
"""Elements whose title names a style sheet."""
_BUTTONS = frozenset({"button", "reset", "submit"})
SHOWN_METADATA = frozenset(
    {
        "description",
        "keywords",
        "og:description",
        "og:image:alt",
        "og:title",
        "twitter:description",
        "twitter:image:alt",
        "twitter:title",
    }
)
"""Names of `<meta>` whose content search engines and social networks show."""


def shown_attributes(text: str, token: Token) -> Iterator[Attribute]:
    """Yield the attributes of a tag of HTML whose values people see or hear (HTML standard, "3.2.6.1 translate").

    The value of a button with a name is a value that a form sends, and left out.
    """
    values = {each.name: text[slice(*each.value)].strip().lower() for each in reversed(token.attributes)}
    return (each for each in token.attributes if _is_shown(token.name, each.name, values))


def _is_shown(element: str, attribute: str, values: Mapping[str, str]) -> bool:
    if attribute in _OF_ANY:
        return element not in _NAMING
    if attribute == "value":
        return element == "input" and values.get("type") in _BUTTONS and not values.get("name")
    if attribute == "content":
        return element == "meta" and (values.get("name") or values.get("property")) in SHOWN_METADATA
    return element in _OF_SOME.get(attribute, ())
