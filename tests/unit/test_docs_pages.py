"""Every page of docs/ is in the index, every link leads somewhere, and so do those of the site."""

import re

import pytest

from tools.site import pages
from tools.venv import ROOT

DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *DOCS]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def text_of(page):
    return FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE):
        words = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_have_targets(page):
    for target, anchor in LINK.findall(text_of(page)):
        if "://" in target:
            continue
        path = ((ROOT / page).parent / target).resolve() if target else ROOT / page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path.relative_to(ROOT)), f"{target}#{anchor}"


def test_the_index_has_every_page_once():
    listed = [target for target, _ in LINK.findall(INDEX) if target.endswith(".md")]
    inside = [f"docs/{target}" for target in listed if not target.startswith("../")]
    assert sorted(inside) == [page for page in DOCS if page != "docs/index.md"]
    decisions = [target for target in listed if target.startswith("adr/")]
    assert decisions == sorted(decisions)


def test_the_readme_is_short_and_begins_with_the_demo_and_the_tests():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert {"    make demo", "    make test"} <= {
        line.partition("  #")[0].rstrip() for line in lines[:10]
    }


@pytest.fixture
def site(tmp_path, monkeypatch):
    """The folder of the site's pages. The scripts from npm are missing here."""
    monkeypatch.setattr(pages, "SCRIPTS", {})
    pages.write(tmp_path / "site")
    return tmp_path / "site" / "docs"


def test_the_site_has_every_page_and_its_links_have_targets(site):
    written = sorted(site.rglob("*.md"))
    names = {path.relative_to(site).as_posix() for path in written}
    assert {page.removeprefix("docs/") for page in DOCS} < names
    assert {"repository/README.md", "repository/CHANGELOG.md", "api/1-producers.md"} < names
    assert "repository/xorack/core/message.py.md" in names
    for path in written:
        if path.suffixes != [".md"]:  # the text of a file
            continue
        for target, _ in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
            if target and "://" not in target:
                assert (path.parent / target).exists(), f"{path}: {target}"


def test_the_navigation_is_that_of_the_index():
    navigation = pages.navigation(
        "# x\n\n## A\n\n- [`a` b](a.md): c\n- [R](../README.md): d\n\n## B\n"
    )
    assert navigation == [{"A": [{"a b": "a.md"}, {"R": "repository/README.md"}]}, {"B": []}]
    sections = [name for section in pages.navigation(INDEX) for name in section]
    assert sections == re.findall(r"^## (.*)$", INDEX, re.MULTILINE)


def test_pages_with_a_diagram_load_mermaid():
    assert '<script src="../mermaid.js">' in pages.page("README.md")[0]
    assert '<script src="mermaid.js">' in pages.page("docs/protocol.md")[0]
    assert "<script" not in pages.page("docs/capacity.md")[0]
