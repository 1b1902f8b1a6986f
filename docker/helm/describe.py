"""Write the table of values in the chart's README and the names of settings in its schema.

`python docker/helm/describe.py` writes both files, with `--check` it exits with 1 where one is out of date. The table
has a row for each value of `values.yaml`, whose meaning is the comment above it. The names are the fields of
`service.settings.Settings`, except those that the chart sets itself.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CHART = Path(__file__).parent / "softserve"
START, END = "<!-- values: written by docker/helm/describe.py -->\n", "<!-- end of values -->\n"
SET_BY_CHART = {
    *("admin_keys", "api_keys", "drain_delay", "grpc_port", "host", "model_dirs", "port", "require_signature"),
    "shutdown_timeout",
}
"""Settings that belong to the chart's own values, or that it does not offer: an admin call reaches a single pod."""


def values(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, default and comment of each value; raises `ValueError` where one has no comment."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    yield from _values(root, text.splitlines(), "")


def _values(node: yaml.MappingNode, lines: list[str], path: str) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        name, comment = f"{path}{key.value}", _comment(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and value.value and not comment:
            yield from _values(value, lines, f"{name}.")
            continue
        if not comment:
            raise ValueError(f"{name} has no comment above it")
        yield name, json.dumps(yaml.safe_load(yaml.serialize(value))), comment


def _comment(lines: list[str], line: int) -> str:
    """Return the comment that ends above a line."""
    found: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#").strip())
    return " ".join(found)


def readme(text: str) -> str:
    """Return the README with the table of `values.yaml` between its marks."""
    rows = [
        f"| `{name}` | `{default}` | {comment.replace('|', chr(92) + '|')} |"
        for name, default, comment in values((CHART / "values.yaml").read_text(encoding="utf-8"))
    ]
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return "\n".join(
        [f"{before}{START}", "| value | default | meaning |", "| --- | --- | --- |", *rows, f"\n{END}{after}"]
    )


def schema(text: str) -> str:
    """Return the schema of values with the names of all settings that the chart does not set itself."""
    sys.path.insert(0, str(ROOT))
    from service.settings import Settings

    content = json.loads(text)
    names = sorted(Settings.model_fields.keys() - SET_BY_CHART)
    content["properties"]["settings"]["propertyNames"]["enum"] = names
    return json.dumps(content, indent=2) + "\n"


def main() -> int:
    outdated = 0
    for name, make in (("README.md", readme), ("values.schema.json", schema)):
        path = CHART / name
        current = path.read_text(encoding="utf-8")
        made = make(current)
        if "--check" not in sys.argv[1:]:
            path.write_text(made, encoding="utf-8")
            continue
        outdated += made != current
        state = "up to date" if made == current else "out of date: run docker/helm/describe.py"
        print(f"{path.relative_to(ROOT)} is {state}")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
