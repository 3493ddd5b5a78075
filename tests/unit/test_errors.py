"""The errors of the library form one tree, in one module."""

import ast
from pathlib import Path

from xorack import errors

LIBRARY = Path(errors.__file__).parent


def error_classes():
    """Yield the public error classes of the library, by their names in its source."""
    for path in LIBRARY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                is_error = any(base.endswith(("Error", "Exception")) for base in bases)
                if is_error and not node.name.startswith("_"):
                    yield node.name


def test_all_errors_are_exported_by_one_module_and_have_one_root():
    assert sorted(error_classes()) == sorted(errors.__all__)
    assert all(issubclass(getattr(errors, name), errors.XorAckError) for name in errors.__all__)
    assert len(errors.__all__) <= 20


def test_an_error_has_one_line_whatever_the_value():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no text")

    assert str(errors.ArgumentError("tag", Broken(), "a text")) == "tag: a Broken, expected a text"
