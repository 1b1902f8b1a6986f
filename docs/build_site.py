"""Build the documentation site of `docs/` into `build/docs/site`, strictly: a broken link fails the build.

The pages are written for a reader of the repository. This script copies them, with the pages at its top, to
`build/docs/pages`, adapts their links, and runs Zensical there. Links to files that are no page, such as source
code, become plain text.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "docs"
TOP_LEVEL = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
ASSETS = (".css", ".js", ".png", ".svg", ".webp")

_CODE = re.compile(r"^(?:```.*?^```|~~~.*?^~~~)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<image>!?)\[(?P<label>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def pages(root: Path = ROOT) -> dict[str, str]:
    """Return the path of each file of the site in the repository, and its path below `pages/`."""
    found = {name: name.lower() for name in TOP_LEVEL}
    for path in sorted((root / "docs").rglob("*")):
        if path.suffix in (".md", *ASSETS):
            found[path.relative_to(root).as_posix()] = path.relative_to(root / "docs").as_posix()
    return found


def adapted(text: str, source: str, placed: Mapping[str, str], root: Path = ROOT) -> str:
    """Return a page of the repository with the links of the site.

    `source` is its path in the repository, `placed` has the paths of `pages`. A link to another file or folder of the
    repository becomes its label. A link to nothing stays as it is, so that the strict build reports it.
    """

    def link(match: re.Match[str]) -> str:
        path, hash_sign, anchor = match["target"].partition("#")
        if ":" in path or not path:
            return match[0]
        target = normpath(PurePosixPath(source).parent / path)
        if target in placed:
            steps = "../" * placed[source].count("/")
            return f"{match['image']}[{match['label']}]({steps}{placed[target]}{hash_sign}{anchor})"
        return match["label"] if (root / target).exists() else match[0]

    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [_LINK.sub(link, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(link, text[end:])])


def stage() -> None:
    """Copy configuration and pages to the build directory."""
    shutil.rmtree(BUILD, ignore_errors=True)
    placed = pages()
    for source, place in placed.items():
        path = BUILD / "pages" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            path.write_text(adapted((ROOT / source).read_text(encoding="utf-8"), source, placed), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / source, path)
    shutil.copyfile(ROOT / "docs" / "mkdocs.yml", BUILD / "mkdocs.yml")


def loaded(html: str) -> list[str]:
    """Return the addresses of other hosts that a page loads when it is opened; links are not loaded."""
    tags = re.findall(r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*>", html)
    return [url for tag in tags for url in re.findall(r"(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)", tag)]


def main() -> int:
    """Return 0 where the site was built without a warning and loads nothing from another host."""
    stage()
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(BUILD / "mkdocs.yml")]
    status = subprocess.run(command, cwd=BUILD).returncode
    for page in sorted((BUILD / "site").rglob("*.html")) if status == 0 else ():
        for url in loaded(page.read_text(encoding="utf-8")):
            print(f"{page.relative_to(BUILD)} loads {url}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
