"""Many tables in one run of `xorack diff`, by a file of YAML, and the report as a page."""

from __future__ import annotations

import json
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.support.files import write_files
from xorack.cli import main
from xorack.cli.diff import diff
from xorack.cli.diff_tables import read_tables

TABLES = """
defaults: {key: &key [id]}
tables:
  - {name: same, left: a.csv, right: a.csv}
  - {name: other, left: a.csv, right: b.csv, key: *key, max-different: 1 rows, "null": [x, y]}
  - {name: near, left: a.csv, right: b.csv, ignore: n, ignore-blanks: ["*"]}
"""
HOSTILE = "<script>alert(1)</script>\u202e'\"&"


@pytest.fixture
def xorack(tmp_path, monkeypatch, capfd):
    """A function that runs `xorack diff` in a folder with a.csv and b.csv."""
    write_files(tmp_path, {"a.csv": "id,n\n1,1\n2,5\n", "b.csv": "id,n\n1,2\n3,5\n"})
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()

    def run(*arguments, **files):
        write_files(tmp_path, {name.replace("_", "."): text for name, text in files.items()})
        status = main(["diff", *arguments])
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.mark.thorough
def test_many_tables(xorack):
    status, out, err = xorack("--tables", "t.yml", "--limit", "5", t_yml=TABLES)
    assert (status, err) == (1, "")
    summary, *tables = out.split("\n\n")
    assert summary.splitlines() == [
        "TABLE  RESULT     LEFT  RIGHT  EQUAL  MISSING  EXTRA  CHANGED",
        "same   equal         2      2      2        0      0        0",
        "other  different     2      2      0        1      1        1",
        "near   different     2      2      1        1      1        0",
    ]
    assert [text.partition(":")[0] for text in tables[::2]] == ["other", "near"]
    status, out, _ = xorack("--tables", "t.yml", "--json")
    found = json.loads(out)
    assert found["equal"] is False
    assert [(one["name"], one["equal"]) for one in found["tables"]] == [
        ("same", True), ("other", False), ("near", False),
    ]  # fmt: skip
    assert found["tables"][1]["counts"]["changed"] == 1


def test_the_file_of_the_guide(tmp_path):
    """Its names and options are those of the command."""
    page = (Path(__file__).parents[2] / "docs" / "diff.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert {*yaml.safe_load(block)["tables"][0]} > {"name", "left", "right", "key"}
    (tmp_path / "guide.yml").write_text(block)
    assert [*read_tables(str(tmp_path / "guide.yml"), diff, ())] == ["orders", "customers"]


def test_fields_that_yaml_or_the_command_negates(tmp_path):
    path = tmp_path / "t.yml"
    for text, name, value in (
        ("null: N/A", "nulls", ("N/A",)),
        ("no-header: true", "header", False),
        ("no-header: false", "header", True),
        ("header: false", "header", False),
    ):
        path.write_text(entry(text))
        assert read_tables(str(path), diff, ())["x"][name] == value


def test_the_status_is_that_of_the_worst_table(xorack):
    same = "tables:\n- &same {name: a, left: a.csv, right: a.csv, key: id}\n"
    within = "- {<<: *same, name: b, right: b.csv, max-different: 3 rows}\n"
    broken = "- {<<: *same, name: c, key: nope}\n"
    assert xorack("--tables", "t.yml", t_yml=same + within)[0] == 0
    status, out, err = xorack("--tables", "t.yml", t_yml=same + broken + within)
    assert (status, err) == (2, "error: c: column nope is not in a.csv, which has id, n\n")
    assert [line.split()[:2] for line in out.splitlines()[1:4]] == [
        ["a", "equal"], ["c", "error"], ["b", "different"],
    ]  # fmt: skip
    status, out, _ = xorack("--tables", "t.yml", "--json")
    assert json.loads(out)["tables"][1] == {
        "name": "c", "error": "column nope is not in a.csv, which has id, n",
    }  # fmt: skip


def test_a_folder_for_each_table(xorack, tmp_path):
    assert xorack("--tables", "t.yml", "--out", "found", t_yml=TABLES)[0] == 1
    assert sorted(os.listdir("found")) == ["near", "other", "same"]
    for name in ("a/b", "..", "."):
        entry = f"tables:\n- {{name: '{name}', left: a.csv, right: a.csv, key: id}}\n"
        status, _, err = xorack("--tables", "t.yml", "--out", "more", t_yml=entry)
        assert (status, err) == (2, f"error: --out: table {name}: its name is none of a folder\n")
    assert not (tmp_path / "more").exists()


def entry(text):
    return f"tables:\n- {{name: x, left: a.csv, right: b.csv, {text}}}\n"


LAUGHS = "a: &a [l, l]\n" + "".join(
    f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, one in pairwise("abcdefghi")
)  # fmt: skip
WRONG = {
    "": "nothing, expected fields and their values",
    "- a\n": "a list, expected fields and their values",
    "tables: []\n": "tables: a list, expected a list of entries",
    "tables:\n  x: {}\n": "tables: fields, expected a list of entries",
    "table: []\n": "table: unknown field, expected tables or defaults",
    "tables: [x]\ndefaults: [x]\n": "defaults: a list, expected fields and their values",
    "tables: [x]\n": "entry 1: 'x', expected fields and their values",
    "tables: [{left: a}]\n": "entry 1: name: nothing, expected a text",
    "tables: [{name: ''}]\n": "entry 1: name: '', expected a text",
    "tables: [{name: 7}]\n": "entry 1: name: 7, expected a text",
    "tables: [{name: x, left: a.csv, key: id}]\n": "table x: Missing argument 'RIGHT'.",
    "tables: [{name: x, left: a.csv, right: b.csv}]\n": "table x: Missing option '--key'.",
    entry("kye: id"): "table x: kye: unknown field",
    entry("json: true"): "table x: json: unknown field",
    entry("key: [id, [n]]"): "table x: key: a list, expected a text: put it in quotes",
    entry("key: yes"): "table x: key: True, expected a text: put it in quotes",
    entry("no-key: 1"): "table x: no-key: 1, expected true or false",
    entry("key: ''"): "table x: Invalid value for '--key': '', expected names of columns",
    entry("key: id, tolerance: much"): "table x: Invalid value for '--tolerance': 'much'",
    entry("key: id, left-sql: 'SELECT 1'"): "table x: a query takes an input's place",
    "tables: [{name: x}]\n": "table x: Missing argument 'LEFT'.",
    "tables: [{name: x, right: a.csv, key: id}]\n": "table x: Missing argument 'LEFT'.",
    "tables: [{name: x, left: a.csv, left-sql: 'SELECT 1', key: id}]\n": (
        "table x: a query takes an input's place: left-sql"
    ),
    entry("key: id") + "- {name: x}\n": "table x: name: another entry has it, too",
    entry("key: id, where: a, where: b"): "line 2: it is no YAML: the field where is there twice",
    "tables: [\n": "line 2: it is no YAML: ",
    "tables: !!python/object/apply:os.system ['x']\n": "line 1: it is no YAML: could not",
    "day: 2026-02-31\n": "it is no YAML: day is out of range for month",
    "a: &x [*x]\ntables: *x\n": "a: unknown field",
    "tables: &x [*x]\n": "entry 1: a list, expected fields",
    LAUGHS + "tables: *i\n": "a: unknown field",
    "tables: [*nope]\n": "line 1: it is no YAML: found undefined alias 'nope'",
    "\x00": "it is no YAML: special characters are not allowed",
    "[" * 1000: "it is no YAML: ",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_files_that_are_wrong(xorack, text):
    status, out, err = xorack("--tables", "t.yml", t_yml=text)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: --tables: t.yml: {WRONG[text]}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tables", "nope.yml"], "--tables: nope.yml: No such file or directory"),
        (["--tables", "."], "--tables: .: Is a directory"),
        (["--tables", "a.csv", "--key", "id"], "--key and --tables: the file has it, for each"),
        (["a.csv", "--tables", "a.csv"], "LEFT and --tables: the file has it, for each table"),
        (["a.csv", "b.csv", "--key", "id", "--html", "a.csv"], "--html: 'a.csv', expected a file"),
        (["a.csv", "b.csv", "--key", "id", "--html", "no/r.html"], "--html: no/r.html: cannot"),
        (["a.csv", "b.csv", "--key", "id", "--html", "d.html"], "--html: d.html: cannot write"),
    ],
)
def test_arguments_that_are_wrong(xorack, tmp_path, arguments, message):
    (tmp_path / "d.html").mkdir()
    status, out, err = xorack(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {message}")


def hostile(folder):
    """Write two files whose names, columns and values want to be HTML."""
    columns = ["id", HOSTILE, "</style><img src=x onerror=alert(2)>", *(f"c{n}" for n in range(60))]
    head = ",".join('"' + name.replace('"', '""') + '"' for name in columns)
    rows = [[str(n), HOSTILE, "long " * 400, *["x" * 30] * 60] for n in range(30)]
    others = [[r[0], r[1] + "!", r[2] + "end", *r[3:]] for r in rows[5:]]
    for name, held in {"<b>left.csv": rows, "right.csv": others}.items():
        lines = (",".join('"' + v.replace('"', '""') + '"' for v in row) for row in held)
        write_files(folder, {name: f"{head}\n" + "".join(f"{line}\n" for line in lines)})
    names = json.dumps(f"table {HOSTILE}")
    return (
        f"tables:\n- {{name: {names}, left: '<b>left.csv', right: right.csv, key: id}}\n"
        "- {name: broken, left: '<i>.csv', right: right.csv, key: id}\n"
        "- {name: whole, left: '<b>left.csv', right: right.csv, no-key: true}\n"
        "- {name: twice, left: '<b>left.csv', right: right.csv, key: c1}\n"
        "- {name: same, left: right.csv, right: right.csv, key: id}\n"
    )


@pytest.mark.thorough
def test_a_page_escapes_everything(xorack, tmp_path):
    tables = hostile(tmp_path)
    assert xorack("--tables", "t.yml", "--html", "r.html", t_yml=tables)[0] == 2
    page = (tmp_path / "r.html").read_text()
    body = page.partition("<body>")[2]
    assert "\u202e" not in page
    tags = "a b body dd del div dl dt h1 h2 h3 html ins li p rect section small span svg table "
    assert {*re.findall(r"</?([a-z0-9]+)", body)} <= {*f"{tags} tbody td th thead tr ul".split()}
    assert {*re.findall(r"<[^>]*?\b(?:src|href|on\w+)=([^ >]+)", body)} == {
        f'"#t{number}"' for number in range(5)
    }
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e&#x27;&quot;&amp;" in body
    assert {*os.listdir()} == {"a.csv", "b.csv", "<b>left.csv", "right.csv", "t.yml", "r.html"}


def test_a_page_fits_and_runs_nothing(xorack, tmp_path, browser):
    tables = hostile(tmp_path)
    xorack("--tables", "t.yml", "--html", "r.html", t_yml=tables)
    url = (tmp_path / "r.html").as_uri()
    for width, scheme in ((400, "light"), (1200, "dark")):
        said = []
        opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        opened.on("console", lambda message, said=said: said.append(message.text))
        opened.on("dialog", lambda dialog, said=said: said.append(dialog.message))
        opened.on("request", lambda request, said=said: said.append(request.url))
        opened.goto(url)
        assert opened.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
        colour = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = colour == "rgb(22, 29, 38)"
        assert dark == (scheme == "dark")  # so the policy lets the style through
        assert opened.locator("h2").count() == 5
        assert opened.locator("del").count() == opened.locator("ins").count() > 10
        opened.close()
        assert said == [url]
