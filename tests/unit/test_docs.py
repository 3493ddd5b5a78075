"""The documentation: its index, links, commands and transitions are correct."""

import ast
import re
import shlex

import click
import pytest

from tools import site
from xorack.cli.commands import cli
from xorack.core.transitions import TRANSITIONS, VERDICTS

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


def test_the_page_of_logs_has_each_line_of_the_functions():
    folders = ("xorack/acker", "xorack/aws", "xorack/client", "lambda_src")
    paths = [path for folder in folders for path in (ROOT / folder).glob("*.py")]
    sources = [path.read_text(encoding="utf-8") for path in paths]
    calls = [
        node
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and re.match(r"log_|_?(LOG|logger)\.", ast.unparse(node.func))
    ]
    given = [one.value for call in calls for one in call.args if isinstance(one, ast.Constant)]
    lines = re.findall(r"^\| (`.+`) \| [A-Z]+ \|", text_of("docs/operations.md"), re.MULTILINE)
    documented = set(re.findall("`(.+?)`", "".join(lines)))
    assert set(given) <= documented
    channels = ("step_functions: ", "lambda: ")
    for line in documented:
        text = next((line.removeprefix(c) for c in channels if line.startswith(c)), line)
        assert any(text in source for source in sources), line


def test_the_faults_of_the_handbook_name_tests_that_exist():
    section = text_of("docs/operations.md").partition("## Faults")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(test_\w+)`", section))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(named) > 7
    assert [name for name in named if not any(f"def {name}(" in one for one in sources)] == []


# -- the `xorack` commands that the pages name: each exists, with its options; none is run ---------

IN_LINE = re.compile(r"(?<!`)`(xorack [a-z-][^`]*)`(?!`)")
LINE = re.compile(r"^(?: {4,}|\$ )?(xorack [a-z-].*?)\\?$", re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```$|(?:^ {4,}[^\n]*\n)+", re.MULTILINE | re.DOTALL)


def commands(text):
    """Yield the commands of a page: those in blocks as they are run, and those in sentences."""
    for block in BLOCK.findall(text):
        yield from ((line, True) for line in LINE.findall(block.replace("\\\n", " ")))
    yield from ((one, False) for one in IN_LINE.findall(BLOCK.sub("", text).replace("\n", " ")))


def parse(line, complete):
    """Parse a command as a shell and click do; raise UsageError if it does not exist."""
    words = shlex.split(line, comments=True)
    ends = [n for n, word in enumerate(words) if word[0] in "|&;>" or word.startswith("2>")]
    command, arguments, path = cli, words[1 : min(ends, default=None)], "xorack"
    context = None
    while True:
        try:
            context = command.make_context(path, list(arguments), parent=context)
        except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):  # --help, or a group
            return
        except (click.MissingParameter, click.BadOptionUsage):
            if complete:
                raise
            return  # a sentence names a command or an option alone
        except click.BadParameter as error:
            if "No such file" not in error.message:  # the reader's own file
                raise
            return
        if not isinstance(command, click.Group):
            return
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        path, command, arguments = command.resolve_command(context, rest)


@pytest.mark.parametrize("page", ["README.md", *DOCS])
def test_every_command_of_a_page_exists(page):
    for line, complete in commands((ROOT / page).read_text(encoding="utf-8")):
        try:
            parse(line, complete)
        except click.UsageError as error:
            pytest.fail(f"{line}: {error.format_message()}")


def test_the_page_of_the_protocol_shows_the_transitions_of_the_code():
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    shown = page.partition("transitions: begin -->")[2].partition("<!-- transitions: end")[0]
    reasons = [f" ({one.reason.partition(':')[0]})" if one.reason else "" for one in TRANSITIONS]
    assert re.findall(r"^ +(\w+) --> (\w+): (.*)$", shown, re.MULTILINE) == [
        (one.source, one.target, one.condition + reason)
        for one, reason in zip(TRANSITIONS, reasons, strict=True)
    ]
    head, _, *rows = [
        row.strip("| ").split(" | ") for row in re.findall(r"^\|.*", shown, re.MULTILINE)
    ]
    assert head == ["state", *(f"`{op}`" for op in VERDICTS["absent"])]
    assert rows == [[state, *verdicts.values()] for state, verdicts in VERDICTS.items()]
    assert page.count("stateDiagram-v2") == 1


PLACE = re.compile(r"`([\w/]+\.py)(?::([\w.]+))?`")


def defined(path):
    """Return the names that a file defines: functions, classes, their methods, and constants."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if hasattr(one, "name")}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id for one in targets if isinstance(one, ast.Name)}
        names |= {node.name} if hasattr(node, "name") else set()
    return names


PLACES = [
    *PLACE.findall(text_of("docs/code-tour.md")),
    *PLACE.findall(text_of("docs/how-it-works.md")),
]


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_the_code_tour_and_the_terms_name_code_that_exists(file, name):
    path = ROOT / file
    assert path.is_file()
    assert not name or name in defined(path)
