"""Draw the import graph of the three packages as `docs/figures/imports.svg`, from the code.

`python docs/import_graph.py` writes the picture, with `--check` it exits with 1 where the picture is out of date. A box
is a folder, or a module at the top of a package; an arrow says that one imports the other. Arrows that follow from
others are left out (transitive reduction), so that the picture shows the layers.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "figures" / "imports.svg"
COLOURS = {"training": "#fde9d0", "models": "#d9ead9", "service": "#d6e4f5"}
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 148, 28, 18, 46, 24

Graph = Mapping[str, set[str]]


def module_graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Return the modules of the packages and the modules that each imports, wherever in it."""
    files = {_name(path.relative_to(root)): path for package in COLOURS for path in (root / package).rglob("*.py")}
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in files else node.module for name in full if name in files or node.module in files)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)


def folder_graph(modules: Graph) -> dict[str, set[str]]:
    """Return the same by folders; modules at the top of a package stay as they are."""
    folders: dict[str, set[str]] = {}
    for name, imported in modules.items():
        folder = _folder(name, modules)
        others = folders.setdefault(folder, set())
        others |= {_folder(other, modules) for other in imported} - {folder}
    return {name: imported for name, imported in folders.items() if "." in name}


def _folder(name: str, modules: Graph) -> str:
    return ".".join(name.split(".")[:2])


def layers(graph: Graph) -> list[list[str]]:
    """Return the nodes by their distance from the bottom; raises `graphlib.CycleError` for a circle."""
    depth: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        depth[node] = 1 + max((depth[other] for other in graph.get(node, ())), default=-1)
    return [sorted(node for node in depth if depth[node] == level) for level in range(max(depth.values()) + 1)]


def reduced(graph: Graph) -> dict[str, set[str]]:
    """Return the graph without the arrows that follow from others."""
    reach: dict[str, set[str]] = {}
    for node in TopologicalSorter(graph).static_order():
        below = graph.get(node, set())
        reach[node] = below.union(*(reach[other] for other in below))
    return {node: {o for o in below if not any(o in reach[p] for p in below)} for node, below in graph.items()}


def drawn(graph: Graph) -> str:
    """Return the picture: a band for each package side by side, the layers from the bottom to the top."""
    levels = layers(graph)
    place: dict[str, tuple[float, float]] = {}
    left = MARGIN
    bands = []
    for package, colour in COLOURS.items():
        rows = [[node for node in level if node.startswith(f"{package}.")] for level in levels]
        rows = [row for row in rows if row]
        columns = max(2, min(4, max(map(len, rows))))
        lines = [row[start : start + columns] for row in rows for start in range(0, len(row), columns)]
        width = columns * (WIDTH + GAP_X) + GAP_X
        for number, line in enumerate(lines):
            indent = left + (width - len(line) * (WIDTH + GAP_X) + GAP_X) / 2
            place |= {node: (indent + index * (WIDTH + GAP_X), number) for index, node in enumerate(line)}
        bands.append((package, colour, left, width, len(lines)))
        left += width + GAP_X
    height = 2 * MARGIN + 20 + max(count for *_, count in bands) * (HEIGHT + GAP_Y)
    bottom = height - MARGIN - HEIGHT
    place = {node: (x, bottom - row * (HEIGHT + GAP_Y)) for node, (x, row) in place.items()}
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left}" height="{height}" font-family="sans-serif">']
    parts.append('<rect width="100%" height="100%" fill="white"/>')
    for package, colour, x, width, _ in bands:
        parts.append(f'<rect x="{x}" y="4" width="{width}" height="{height - 8}" rx="8" fill="{colour}"/>')
        parts.append(f'<text x="{x + 10}" y="24" font-size="15" font-weight="bold">{package}</text>')
    for node, others in sorted(reduced(graph).items()):
        parts += [_arrow(place[node], place[other], node, other) for other in sorted(others)]
    for node, (x, y) in sorted(place.items()):
        name = node.partition(".")[2]
        label = f"{name}/" if (ROOT / node.replace(".", "/")).is_dir() else f"{name}.py"
        parts.append(f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="white" stroke="#555"/>')
        parts.append(f'<text x="{x + WIDTH / 2}" y="{y + 19}" font-size="12" text-anchor="middle">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _arrow(start: tuple[float, float], end: tuple[float, float], node: str, other: str) -> str:
    same = node.partition(".")[0] == other.partition(".")[0]
    (x1, y1), (x2, y2) = start, end
    x1, x2, y1 = x1 + WIDTH / 2, x2 + WIDTH / 2, y1 + HEIGHT
    middle = (y1 + y2) / 2
    colour, width = ("#666", 1.1) if same else ("#b05020", 0.9)
    return f'<path d="M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def main() -> int:
    picture = drawn(folder_graph(module_graph()))
    if "--check" in sys.argv[1:]:
        current = PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == picture
        print(f"{PICTURE.relative_to(ROOT)} is {'up to date' if current else 'out of date: run docs/import_graph.py'}")
        return 0 if current else 1
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
