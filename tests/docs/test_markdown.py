import pytest

from docs.generators.markdown import cell, field_table, paragraphs, type_of


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "path"}, "path"),
        ({"type": "string", "maxLength": 16}, "string, at most 16 characters"),
        ({"type": "string", "pattern": "^a|b$"}, r"string, pattern `^a\|b$`"),
        ({"type": "integer", "minimum": 1, "maximum": 65535}, "integer, 1 to 65,535"),
        ({"type": "integer", "minimum": 0, "exclusiveMaximum": 2**63}, "integer, at least 0, below 2^63"),
        ({"type": "number", "exclusiveMinimum": 0}, "number, above 0"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"anyOf": [{"type": "number", "minimum": 0.5}, {"type": "null"}]}, "number, at least 0.5; null"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, "list of strings, not empty"),
        (
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            "list of strings or integers",
        ),
        ({"type": "array", "items": {"$ref": "#/$defs/Graph"}}, "list of section `graphs`"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "mapping to number"),
        ({"const": "ready"}, "`ready`"),
        ({"enum": ["pre", "post"]}, "`pre`, `post`"),
        ({}, "any value"),
    ],
)
def test_types_are_words(schema, expected):
    assert type_of(schema, {"Graph": "section `graphs`"}) == expected


def test_fields_have_their_default_or_the_summary_of_their_object():
    objects = {"Layer": {"description": "The layer.\n\nMore of it."}}
    schema = {
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "description": "Name of it."},
            "top_k": {"type": "integer", "default": 5, "description": "How many."},
            "layer": {"$ref": "#/$defs/Layer", "default": {"size": 3}},
        },
    }
    assert field_table(schema, {}, objects).splitlines()[2:] == [
        "| `name` | string | required | Name of it. |",
        "| `top_k` | integer | `5` | How many. |",
        "| `layer` | `Layer` |  | The layer. |",
    ]
    assert field_table(schema, {}, objects, defaults=False).splitlines()[3] == "| `top_k` | integer | How many. |"


def test_text_is_not_read_as_markup():
    assert cell("a <b> [c] | `<d>`\n*e*") == r"a &lt;b> \[c] \| `<d>` \*e\*"
    assert paragraphs("See:\n\n* `a[0]`, K * V, two_words") == "See:\n\n* `a[0]`, K * V, two_words"
