"""The public surface: what `xorack`, `.spark`, `.cdk` and `.errors` export, name by name.

tests/unit/surface.txt holds it. A change of the surface changes that file in the same commit:
`python -m tests.unit.test_surface` writes it. All other modules are private.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SURFACE = Path(__file__).with_name("surface.txt")
PACKAGES = ("xorack", "xorack.spark", "xorack.cdk", "xorack.errors")


@cache
def tree(module):
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(module):
    """Return what a module imports from this project: name -> its module and name there."""
    return {
        one.asname or one.name: (node.module, one.name)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("xorack")
        for one in node.names
    }


def exported(package):
    """Return the public names of a package, each with the module that defines it."""
    private = ("xorack._lazy", "xorack.core", package)
    found = {name: home for name, home in imported(package).items() if home[0] not in private}
    if found.pop("*", None):
        homes = [
            (home, node) for home in ("xorack.core.errors", package) for node in tree(home).body
        ]
        found |= {
            node.name: (home, node.name) for home, node in homes if isinstance(node, ast.ClassDef)
        }
    return found


def definition(module, name):
    """Return the module and the node of a class or a function, or None if another has it."""
    for node in tree(module).body:
        if getattr(node, "name", None) == name:
            return module, node
    home = imported(module).get(name)
    return definition(*home) if home else None


def signature(node, indent=""):
    marks = [ast.unparse(one) for one in node.decorator_list]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    kinds = ("classmethod", "property")
    kind = "".join(
        f"@{mark} " for mark in (m.removeprefix("cached_") for m in marks) if mark in kinds
    )
    return f"{indent}{kind}{node.name}({ast.unparse(node.args)}){returns}"


def members(module, node):
    """Yield the public fields and methods of a class, those of its bases in the project first."""
    for base in node.bases:
        found = definition(module, ast.unparse(base))
        if found:
            yield from members(*found)
    for item in node.body:
        name = getattr(item, "name", "")
        if isinstance(item, ast.FunctionDef) and (name == "__init__" or not name.startswith("_")):
            yield name, signature(item, "    ")
        elif isinstance(item, ast.AnnAssign) and not item.target.id.startswith("_"):
            value = "" if item.value is None else " = ..."
            yield item.target.id, f"    {item.target.id}: {ast.unparse(item.annotation)}{value}"


def described(package):
    for name, home in sorted(exported(package).items()):
        found = definition(*home)
        if found is None:
            yield f"{package}.{name}"
        elif isinstance(found[1], ast.ClassDef):
            bases = ", ".join(map(ast.unparse, found[1].bases))
            yield f"{package}.{name}" + (f"({bases})" if bases else "")
            yield from dict(members(*found)).values()
        else:
            yield f"{package}.{signature(found[1])}"


def surface():
    return "".join(f"{line}\n" for package in PACKAGES for line in described(package))


def test_the_surface_is_the_listed_one():
    assert surface().splitlines() == SURFACE.read_text(encoding="utf-8").splitlines()


def test_what_is_public_has_a_docstring():
    found = [definition(*home) for one in PACKAGES for home in exported(one).values()]
    nodes = [node for _, node in filter(None, found) if hasattr(node, "name")]
    methods = [item for node in nodes if isinstance(node, ast.ClassDef) for item in node.body]
    public = [one for one in [*nodes, *methods] if not getattr(one, "name", "_").startswith("_")]
    assert [one.name for one in public if not ast.get_docstring(one)] == []


def test_pages_and_examples_use_public_names():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/api").glob("*.md")]
    texts = [*pages, *(ROOT / "examples").rglob("*.py")]
    public = {f"{package}.{name}" for package in PACKAGES for name in exported(package)}
    public |= {"xorack.testing.MemoryTracker"}  # a module for users' tests
    private = []
    for path in texts:
        for module, names in re.findall(
            r"from (xorack[\w.]*) import ([\w, ]+)", path.read_text(encoding="utf-8")
        ):
            used = {f"{module}.{name.strip()}" for name in names.split(",")}
            private += [(path.name, name) for name in used - public - {*PACKAGES}]
        for name in re.findall(r"^::: (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            private += [(path.name, name)] * (name not in public | {*PACKAGES})
    assert private == []


if __name__ == "__main__":
    SURFACE.write_text(surface(), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("cdk.Settings", "typing_extensions"),
        ("cdk.Acker", "constructs"),
        ("spark.Tracking", "pyspark"),
    ],
)
def test_a_package_that_is_missing_names_its_extra(name, package):
    extra, _, attribute = name.partition(".")
    code = f"import sys; sys.modules[{package!r}] = None; import xorack.{extra} as it; "
    command = [sys.executable, "-c", f"{code}it.{attribute}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    line = f"xorack.{extra} needs {package}: install xorack with the extra {extra}"
    assert run.stderr.splitlines()[-1] == f"ModuleNotFoundError: {line}"
