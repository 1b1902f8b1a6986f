"""Nested sections of a configuration file, from the JSON schema of its pydantic model."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from docs.generators.markdown import Schema, code, field_table, paragraphs, reference

__all__ = ["Sections"]


class Sections:
    """The sections of a model: each object that a field refers to, under its dotted path in the file.

    `[]` is an entry of a list, `*` a name of a mapping. An object that several fields refer to has the path of the
    first one.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self.schema = model.model_json_schema()
        self._objects: Mapping[str, Schema] = self.schema.get("$defs", {})
        self.paths: dict[str, str] = {}
        for name, field in self.schema["properties"].items():
            self._visit(field, name)
        self._names = {name: f"section {code(path)}" for name, path in self.paths.items()}

    def _visit(self, schema: Schema, path: str) -> None:
        name = reference(schema)
        if name is not None and name not in self.paths and "properties" in self._objects[name]:
            self.paths[name] = path
            for field, described in self._objects[name]["properties"].items():
                self._visit(described, f"{path}.{field}")
        for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            self._visit(option, path)
        if isinstance(items := schema.get("items"), dict):
            self._visit(items, f"{path}[]")
        if isinstance(values := schema.get("additionalProperties"), dict):
            self._visit(values, f"{path}.*")

    def fields(self, without: frozenset[str] = frozenset()) -> str:
        """Return the table of the fields at the top, without some of them."""
        kept = {name: field for name, field in self.schema["properties"].items() if name not in without}
        return field_table({**self.schema, "properties": kept}, self._names, self._objects)

    def parts(self, heading: str, without: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield the sections, without those of some fields at the top; `heading` is the mark of their headings."""
        for name, path in self.paths.items():
            if path.split(".")[0].removesuffix("[]") not in without:
                described = self._objects[name]
                fields = field_table(described, self._names, self._objects)
                yield f"{heading} {code(path)}\n\n{paragraphs(described.get('description'))}\n\n{fields}"
