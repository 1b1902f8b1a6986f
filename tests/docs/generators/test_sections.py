from pydantic import BaseModel, ConfigDict

from docs.generators.sections import Sections


class Documented(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Tensor(Documented):
    """An input or output."""

    shape: list[int]
    """Its axes."""


class Graph(Documented):
    """A computation."""

    inputs: list[Tensor]
    outputs: list[Tensor]


class File(Documented):
    name: str
    """Its name."""
    graphs: dict[str, Graph]
    seed: int = 1
    """Seed of everything random."""


def test_sections_have_the_path_of_their_first_field():
    sections = Sections(File)
    assert sections.paths == {"Graph": "graphs.*", "Tensor": "graphs.*.inputs[]"}
    assert sections.fields(frozenset({"graphs"})).splitlines()[2:] == [
        "| `name` | string | required | Its name. |",
        "| `seed` | integer | `1` | Seed of everything random. |",
    ]
    graph, tensor = sections.parts("###")
    assert graph.startswith("### `graphs.*`\n\nA computation.\n")
    assert "| `outputs` | list of section `graphs.*.inputs[]` | required | An input or output. |" in graph
    assert "| `shape` | list of integers | required | Its axes. |" in tensor
    assert list(sections.parts("###", frozenset({"graphs"}))) == []
