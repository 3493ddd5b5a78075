"""The `xorack` commands that the documentation names exist, with their options. None is run."""

import re
import shlex
from pathlib import Path

import click
import pytest

from xorack.cli.commands import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
        except click.exceptions.Exit:  # --help
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page):
    for line, complete in commands(page.read_text(encoding="utf-8")):
        try:
            parse(line, complete)
        except click.UsageError as error:
            pytest.fail(f"{line}: {error.format_message()}")


def test_the_runbook_of_dead_letters_names_every_command():
    text = (ROOT / "docs" / "dead-letters.md").read_text(encoding="utf-8")
    lines = " ".join(line for line, complete in commands(text) if complete)
    for command in ("list", "show", "delete"):
        assert f"xorack dead-letters {command}" in lines
    assert "xorack redrive" in lines
    assert len(re.findall("xorack ", lines)) >= 10


@pytest.mark.parametrize(
    "line",
    ["xorack shwo x", "xorack show", "xorack show x --jsno", "xorack dead-letters purge",
     "xorack list --order size | head -1", "xorack extend x && echo"],
)  # fmt: skip
def test_a_command_that_does_not_exist_is_noticed(line):
    ((found, complete),) = commands(f"    {line}\n")
    with pytest.raises(click.UsageError):
        parse(found, complete)
    assert list(commands(f"See `{line}`.")) == [(line, False)]
