"""Every page of docs/ is in the index, every link leads somewhere, and so do those of the site."""

import re

import pytest

from tools import site

ROOT = site.ROOT
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
    # The navigation of mkdocs.yml has these too, or the site does not build.
    others = ("docs/index.md", "docs/adr/", "docs/api/")
    assert sorted(inside) == [page for page in DOCS if not page.startswith(others)]


def test_the_readme_is_short_and_begins_with_the_demo_and_the_tests():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 200
    assert {"    make demo", "    make test"} <= {
        line.partition("  #")[0].rstrip() for line in lines[:10]
    }


def test_links_out_of_the_docs_lead_to_the_repository():
    text = "[a](../../README.md#x) [b](0005.md#y) [c](..) [d](https://e.org/f) [e](#g)"
    text = text.replace("0005.md", "0005-layers-and-shapes.md")
    url = "https://e.org"
    expected = text.replace("../../README.md", f"{url}/blob/main/README.md")
    expected = expected.replace("(..)", f"({url}/blob/main/docs)")
    assert site.with_repository(text, "adr", url) == expected


def test_a_link_to_nothing_stops_the_site():
    with pytest.raises(ValueError, match=r"the repository has no docs/none\.md"):
        site.with_repository("[a](none.md)", "", "https://e.org")
