"""The site of the docs builds without a warning, and loads nothing from elsewhere."""

import re
import subprocess
import sys

import pytest

from tools.venv import ROOT

LOADED = re.compile(
    r'<(?:script|img|link rel="(?:stylesheet|preconnect)")[^>]*(?:src|href)="(.*?)"'
)


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first time, it installs mkdocs
def test_the_site_builds():
    subprocess.run([sys.executable, "-m", "tools.site"], cwd=ROOT, check=True)
    pages = {path: path.read_text(encoding="utf-8") for path in (ROOT / "site").rglob("*.html")}
    assert len(pages) > 60
    for path, text in pages.items():
        loaded = LOADED.findall(text)
        assert loaded, path
        assert not [one for one in loaded if re.match("https?:|//", one)], path
    assert 'id="xorack.Tracker"' in pages[ROOT / "site" / "api" / "1-producers.html"]
    assert 'class="mermaid"' in pages[ROOT / "site" / "repository" / "index.html"]
