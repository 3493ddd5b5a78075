"""The site of the docs builds without a warning, and loads nothing from elsewhere."""

import re
import subprocess
import sys

import pytest

from infra.synth import ROOT

LOADED = re.compile(
    r'<(?:script|img|link rel="(?:stylesheet|preconnect)")[^>]*(?:src|href)="(.*?)"'
)


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first time, it installs mkdocs
def test_the_site_builds():
    subprocess.run(["make", "docs", f"PYTHON={sys.executable}"], cwd=ROOT, check=True)
    pages = {path: path.read_text(encoding="utf-8") for path in (ROOT / "site").rglob("*.html")}
    assert len(pages) == len(list((ROOT / "docs").rglob("*.md"))) + 1  # and 404.html
    for path, text in pages.items():
        loaded = LOADED.findall(text)
        assert loaded, path
        assert not [one for one in loaded if re.match("https?:|//", one)], path
        assert 'data-md-component="source"' not in text, "it would ask GitHub for stars"
    assert 'id="xorack.Tracker"' in pages[ROOT / "site" / "api" / "producers.html"]
    assert 'class="mermaid"' in pages[ROOT / "site" / "protocol.html"]
    assert '<script src="mermaid.js">' in pages[ROOT / "site" / "protocol.html"]
    index = (ROOT / "site" / "llms.txt").read_text(encoding="utf-8")
    assert index.startswith("# xorack\n")
    assert "/blob/main/docs/spark.md): read the guide" in index
