"""The pages' HTML is in templates, which escape every value."""

import ast
import re
from pathlib import Path

from xorack.web.page.pages import templates

WEB = Path(__file__).parents[2] / "xorack" / "web"
TAG = re.compile(r"</?[a-z][a-z0-9]*[\s>/]|&[a-z#0-9]+;")


def test_no_module_holds_html():
    found = {
        (path.name, node.value)
        for path in WEB.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and TAG.search(node.value)
    }
    assert found == set()


def test_no_template_switches_escaping_off():
    pages = list((WEB / "page").glob("*.html"))
    assert len(pages) >= 6
    for path in pages:
        assert not re.search(r"\|\s*safe|autoescape|Markup", path.read_text(encoding="utf-8")), path
    assert templates().autoescape is True
