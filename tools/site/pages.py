"""Writes what mkdocs builds the site of: the pages of docs/, and of files that they link to.

The docs are written for GitHub, where links lead out of docs/: to README.md, to code, to folders.
In the site each such target is a page below repository/. The navigation is docs/index.md's, and
the API reference's.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
MODULES: Final = HERE / "node_modules"
SCRIPTS: Final = {
    "mermaid.js": MODULES / "@mermaid-js" / "tiny" / "dist" / "mermaid.tiny.js",
    "iframe-worker.js": MODULES / "iframe-worker" / "shim" / "index.js",
}
"""Name in the site -> file. Otherwise the theme loads both from a CDN."""
_LINK: Final = re.compile(r"(?<=\]\()[^)#\s:]+(?=[)#])")
_SECTION_OR_PAGE: Final = re.compile(r"^(?:## (.+)|- \[(.+?)\]\(([^)#]+)\).*)$", re.MULTILINE)
Navigation = list[dict[str, list[dict[str, str]]]]


def place(path: str) -> str:
    """Return the place in the site of a file or folder of the repository."""
    folder = (ROOT / path).is_dir()
    if path.startswith("docs/"):
        return "index.md" if folder else path.removeprefix("docs/")
    page = "" if path.endswith(".md") else "/index.md" if folder else ".md"
    return f"repository/{path}{page}"


def targets(path: str, text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the links of a page of the repository that lead to something in it, and to what."""
    for link in _LINK.finditer(text):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[0]))
        if (ROOT / target).exists():
            yield link, target


def page(path: str) -> tuple[str, set[str]]:
    """Return the text of a page for the site, and the files and folders it links to."""
    text = (ROOT / path).read_text(encoding="utf-8")
    here, parts, linked, end = posixpath.dirname(place(path)), [], set(), 0
    for link, target in targets(path, text):
        parts += text[end : link.start()], posixpath.relpath(place(target), here)
        linked.add(target)
        end = link.end()
    parts.append(text[end:])
    if "\n```mermaid\n" in text:
        parts.append(f'\n<script src="{posixpath.relpath("mermaid.js", here)}"></script>\n')
    return "".join(parts), linked


def source_page(path: str) -> str:
    """Return a page with a file's text, or the names of a folder's files; search leaves it out."""
    head = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n"
    if (ROOT / path).is_dir():
        files = (one.relative_to(ROOT / path) for one in (ROOT / path).rglob("*.*"))
        names = sorted(name.as_posix() for name in files if "__pycache__" not in name.parts)
        return head + "".join(f"- `{name}`\n" for name in names)
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"{head}`````{Path(path).suffix[1:]}\n{text}\n`````\n"


def navigation(index: str) -> Navigation:
    """Read the navigation from the text of docs/index.md: its sections and their lists."""
    sections: Navigation = []
    for section, title, link in _SECTION_OR_PAGE.findall(index):
        if section:
            sections.append({section: []})
        else:
            (pages,) = sections[-1].values()
            target = place(posixpath.normpath(f"docs/{link}"))
            pages.append({title.replace("`", ""): target})
    return sections


def write(folder: Path) -> Path:
    """Write the site's pages and settings into a folder, emptied before; return the settings."""
    docs = folder / "docs"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", docs)
    shutil.copytree(HERE / "api", docs / "api")
    shutil.copy(HERE / "site.css", docs)
    for name, script in SCRIPTS.items():
        shutil.copy(script, docs / name)
    left = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    seen = set(left)
    while left:
        path = left.pop()
        if path.endswith(".md"):
            text, linked = page(path)
            more = {one for one in linked - seen if not one.startswith("docs/")}
            left += more
            seen |= more
        else:
            text = source_page(path)
        target = docs / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    api = [f"api/{one.name}" for one in sorted((HERE / "api").glob("*.md"))]
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    settings = {
        "INHERIT": str(HERE / "mkdocs.yml"),
        "nav": [{"Home": "index.md"}, *navigation(index), {"API": api}],
        "docs_dir": str(docs),
        "site_dir": str(ROOT / "site"),
    }
    written = folder / "mkdocs.yml"
    written.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    return written
