"""Hooks for mkdocs (mkdocs.yml): links into the repository, scripts from npm, and llms.txt."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
SCRIPTS: Final = {
    "mermaid.js": "node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js",
    "iframe-worker.js": "node_modules/iframe-worker/shim/index.js",
}
"""Maps a name in the site to a file. Otherwise the theme loads both from another server."""
_LINK: Final = re.compile(r"(?<=\]\()[^)#\s:]+(?=[)#])")


def with_repository(text: str, folder: str, url: str) -> str:
    """Point links that lead out of docs/ to the repository. The page is in `folder` of docs/."""

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link[0]))
        if not (ROOT / target).exists():
            raise ValueError(f"the repository has no {target}")
        inside = target.startswith("docs/") and (ROOT / target).is_file()
        return link[0] if inside else f"{url}/blob/main/{target}"

    return _LINK.sub(rewritten, text)


def on_files(files: Any, config: Any, **_: Any) -> None:
    from mkdocs.structure.files import File

    for name, path in SCRIPTS.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Rewrite the links of a page. If it has diagrams, load their script."""
    folder = posixpath.dirname(page.file.src_uri)
    if "\n```mermaid\n" in markdown:
        script = posixpath.relpath("mermaid.js", folder or ".")
        markdown += f'\n<script src="{script}"></script>\n'
    return with_repository(markdown, folder, config.extra["repository"])


def on_post_build(config: Any, **_: Any) -> None:
    """Write llms.txt: the index with links to the sources of the pages."""
    url = config.extra["repository"]
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[.*\n\n", "", with_repository(index, "", url), flags=re.MULTILINE)
    sources = re.sub(r"\]\((?!https:)", f"]({url}/blob/main/docs/", text)
    Path(config.site_dir, "llms.txt").write_text(sources, encoding="utf-8")
