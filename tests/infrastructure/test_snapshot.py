"""snapshot.txt has the properties of the default template, and the properties that settings change.

A change of a template changes that file in the same commit, and its diff shows what CloudFormation
does. `SNAPSHOT=write python -m pytest -n 0 tests/infrastructure/test_snapshot.py` writes it. The
other files test the properties that a new snapshot must keep.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .templates import Template

SNAPSHOT = Path(__file__).with_name("snapshot.txt")
VARIANTS = ("varied", "adopted", "minimal")
WIDTH = 160
"""A longer value is split into its parts."""
PROSE = ("Description", "AlarmDescription", "DashboardBody", "Metadata")
"""Properties that the snapshot does not have."""


def text(value: Any) -> Any:
    """A value without prose, with references and joins as text."""
    match value:
        case {"Ref": name} | {"Fn::GetAtt": [name, "Arn"]}:
            return "${" + name + ("}" if "Ref" in value else ".Arn}")
        case {"Fn::Join": [separator, parts]}:
            return separator.join(map(str, map(text, parts)))
        case dict():
            return {name: text(part) for name, part in value.items() if name not in PROSE}
        case list():
            return [text(part) for part in value]
    return value


def lines(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The parts of a value by their paths, each short enough for a line."""
    shown = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or len(path) + len(shown) < WIDTH:
        yield path, shown
        return
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in sorted(parts):
        yield from lines(part, f"{path}.{name}")


def properties(template: Template) -> dict[str, str]:
    """All properties by their paths; hashes of the functions' code are left out."""
    joined = json.dumps(text({**template.resources, "Outputs": template.body["Outputs"]}))
    joined = re.sub(r"(CurrentVersion)\w{40}|\w{64}\.zip", r"\1", joined)
    return {
        path.replace(".Properties", ""): value
        for name, one in json.loads(joined).items()
        for part, properties in one.items()
        for path, value in lines(properties, f"{name}.{part}")
    }


def changes(of: dict[str, str], to: dict[str, str]) -> Iterator[str]:
    """The lines that are new or different, and the names of what is gone."""
    yield from (f"  {path} = {value}" for path, value in to.items() if of.get(path) != value)
    kept = {path.partition(".")[0] for path in to}
    gone = (path if path.partition(".")[0] in kept else path.partition(".")[0] for path in of)
    yield from (f"  no {path}" for path in dict.fromkeys(gone) if path not in to)


@pytest.fixture(scope="module")
def snapshot():
    sections = re.split(r"^# (\w+)\n", SNAPSHOT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: part.splitlines() for name, part in zip(*[iter(sections[1:])] * 2, strict=True)}


@pytest.mark.skipif("SNAPSHOT" not in os.environ, reason="it writes the file of the others")
def test_write(request, template):
    default = properties(template)
    made = {name: properties(request.getfixturevalue(name)) for name in VARIANTS}
    parts = {"default": changes({}, default)}
    parts |= {name: changes(default, one) for name, one in made.items()}
    written = "".join(f"# {name}\n" + "".join(f"{one}\n" for one in parts[name]) for name in parts)
    SNAPSHOT.write_text(written, encoding="utf-8")


def test_the_default_template_is_the_snapshot(template, snapshot):
    assert list(changes({}, properties(template))) == snapshot["default"]


@pytest.mark.parametrize("name", VARIANTS)
def test_settings_change_what_the_snapshot_names(template, snapshot, request, name):
    made = properties(request.getfixturevalue(name))
    assert list(changes(properties(template), made)) == snapshot[name]
