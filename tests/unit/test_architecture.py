"""A folder imports only from folders below it, and imports stay lean."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FLOORS = [
    ["xorack/core"],
    ["xorack/aws"],
    ["xorack/acker", "xorack/cdk"],
    ["xorack/client", "xorack/ops", "xorack/spark", "xorack/local", "infra"],
    ["xorack/cli", "lambda_src", "pipeline"],
    ["demo"],
]
"""The folders, lowest floor first. A folder imports only from lower floors, and from itself."""

FLOOR = {folder: number for number, folders in enumerate(FLOORS, 1) for folder in folders}
AWS_FREE = {"boto3", "botocore", "click", "rich", "pyspark", "pyarrow", "aws_cdk"}


def folder_of(module):
    """The folder of ours that a dotted name lies in, or None."""
    parts = module.split(".")
    if parts[0] == "xorack":
        return "/".join(parts[:2])
    return parts[0] if parts[0] in FLOOR else None


def imports(path):
    """The modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module in ("xorack", *FLOOR):
                yield from (f"{node.module}.{name.name}" for name in node.names)


FILES = [(folder, path) for folder in FLOOR for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize(("folder", "path"), FILES, ids=lambda value: str(value).split("main/")[-1])
def test_a_folder_imports_only_from_floors_below(folder, path):
    for imported in imports(path):
        other = folder_of(imported)
        if other is None or other == folder or other == "xorack":
            continue
        name = f"{path.relative_to(ROOT)} imports {imported}"
        if other in FLOOR:
            assert FLOOR[other] < FLOOR[folder], name
        else:  # a name of the package's face, such as xorack.traced
            assert FLOOR[folder] > 4, f"{name} through the face of the package"


def test_every_folder_has_a_floor():
    folders = {f"xorack/{path.parent.name}" for path in (ROOT / "xorack").glob("*/__init__.py")}
    assert folders == {folder for folder in FLOOR if folder.startswith("xorack/")}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "xorack" / "core").glob("*.py")), ids=lambda p: p.name
)
def test_the_core_does_no_io(path):
    assert not {name.split(".")[0] for name in imports(path)} & AWS_FREE


def loaded_by(statement):
    code = f"import sys; {statement}; print('\\n'.join(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_next_to_nothing():
    loaded = loaded_by("import xorack")
    assert not loaded & {"boto3", "botocore", "pyee", "xxhash", "asyncio", "pyspark"}


def test_the_core_loads_no_aws():
    loaded = loaded_by(
        "from xorack import xor, traced, peel, unit_id; import xorack.acker.chain_writer"
    )
    assert not loaded & {"boto3", "botocore", "pyee", "asyncio"}


@pytest.mark.parametrize("handler", ["consumer", "sweeper", "widget"])
def test_handlers_load_no_more_than_they_use(handler):
    loaded = loaded_by(f"import lambda_src.{handler}")
    assert not loaded & {"pyee", "click", "rich", "pyspark", "pydantic", "moto", "aws_cdk"}
    # What each cold start would wait for: an event loop, and a class for every event there is.
    assert not loaded & {"asyncio", "aws_lambda_powertools.utilities.data_classes"}
    # Dead letters are rare: what sends them is loaded with the first.
    assert "xorack.aws.sqs" not in loaded
    # Nor do they compile the direct API, or what reads ids back.
    assert not {name for name in loaded if name.startswith("xorack.client")}
    assert "xorack.core.peeling" not in loaded


def test_the_sweeper_does_without_the_consumer():
    assert "xorack.acker.consumer" not in loaded_by("import lambda_src.sweeper")


def test_the_widget_only_looks():
    loaded = loaded_by("import lambda_src.widget")
    assert not loaded & {
        "aws_lambda_powertools", "xorack.acker.consumer", "xorack.acker.sweeper"
    }  # fmt: skip
