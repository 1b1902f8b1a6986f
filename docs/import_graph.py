"""Draw the import graph of the three packages as `docs/figures/imports.svg`, from the code.

`python docs/import_graph.py` writes the picture, with `--check` it exits with 1 where the picture is out of date. A box
is a folder, or a module at the top of a package; a line from a box to a lower one says that it imports it. Lines that
follow from others are left out (transitive reduction), so that the picture shows the layers. Modules never import each
other in a circle, which this script refuses; folders may, and the lines that close such a circle are dashed.
"""

import ast
import statistics
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
    for node in _run_time_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                yield from {name, node.module} & files.keys() if name not in files else {name}
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)


def _run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, except the blocks that only type checkers read."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _run_time_nodes(child)


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


def split(modules: Graph) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the folder graph as a graph without circles, and the imports that would close one.

    A folder is the lower, the closer its modules are to the bottom of the module graph, on average. Raises
    `graphlib.CycleError` where modules import each other in a circle.
    """
    depth: dict[str, int] = {}
    for name in TopologicalSorter(modules).static_order():
        depth[name] = 1 + max((depth[other] for other in modules[name]), default=-1)
    graph = folder_graph(modules)
    rank = {folder: statistics.fmean(depth[m] for m in modules if _folder(m, modules) == folder) for folder in graph}
    down: dict[str, set[str]] = {folder: set() for folder in graph}
    up: dict[str, set[str]] = {}
    for folder in sorted(graph, key=lambda name: (rank[name], name)):
        for other in sorted(graph[folder] & graph.keys()):
            closes = folder in _reachable(graph, other) and (rank[other], other) > (rank[folder], folder)
            (up if closes else down).setdefault(folder, set()).add(other)
    return down, up


def _reachable(graph: Graph, start: str) -> set[str]:
    found, pending = {start}, [start]
    while pending:
        new = graph.get(pending.pop(), set()) - found
        found |= new
        pending += new
    return found


def layers(graph: Graph) -> list[list[str]]:
    """Return the nodes by their distance from the bottom."""
    depth: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        depth[node] = 1 + max((depth[other] for other in graph.get(node, ())), default=-1)
    return [sorted(node for node in depth if depth[node] == level) for level in range(max(depth.values()) + 1)]


def reduced(graph: Graph) -> dict[str, set[str]]:
    """Return the graph without the imports that follow from others."""
    below = {node: graph[node].union(*(_reachable(graph, other) - {other} for other in graph[node])) for node in graph}
    return {node: {o for o in graph[node] if not any(o in below[p] for p in graph[node])} for node in graph}


def drawn(graph: Graph, up: Graph) -> str:
    """Return the picture: a band for each package side by side, the layers from the bottom to the top."""
    levels = layers(graph)
    place: dict[str, tuple[float, float]] = {}
    left: float = MARGIN
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
        parts += [_line(place[node], place[other], node, other) for other in sorted(others)]
    for node, others in sorted(up.items()):
        parts += [_line(place[other], place[node], node, other, ' stroke-dasharray="4 3"') for other in sorted(others)]
    for node, (x, y) in sorted(place.items()):
        name = node.partition(".")[2]
        label = f"{name}/" if (ROOT / node.replace(".", "/")).is_dir() else f"{name}.py"
        parts.append(f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="white" stroke="#555"/>')
        parts.append(f'<text x="{x + WIDTH / 2}" y="{y + 19}" font-size="12" text-anchor="middle">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _line(start: tuple[float, float], end: tuple[float, float], node: str, other: str, style: str = "") -> str:
    same = node.partition(".")[0] == other.partition(".")[0]
    (x1, y1), (x2, y2) = start, end
    x1, x2, y1 = x1 + WIDTH / 2, x2 + WIDTH / 2, y1 + HEIGHT
    middle = (y1 + y2) / 2
    colour, width = ("#666", 1.1) if same else ("#b05020", 0.9)
    curve = f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
    return f'<path d="{curve}" fill="none" stroke="{colour}" stroke-width="{width}"{style}/>'


def main() -> int:
    picture = drawn(*split(module_graph()))
    if "--check" in sys.argv[1:]:
        current = PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == picture
        print(f"{PICTURE.relative_to(ROOT)} is {'up to date' if current else 'out of date: run docs/import_graph.py'}")
        return 0 if current else 1
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
