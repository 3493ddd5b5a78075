"""Dependencies point one way, entry points -> services -> adapters -> core; imports stay lean."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CORE = {"errors", "hashing", "stamps", "messages", "chain", "events", "retry", "ports"}
CORE |= {"exactly_once", "clock", "bulk", "peeling"}
ADAPTERS = {"aws", "memory", "dynamodb", "table", "sqs", "eventbridge"}
SERVICES = {"consume", "publish", "sweep", "track", "status", "overview"}


def layer(module):
    """How high a module stands; what it imports must not stand higher."""
    parts = module.split(".")
    if parts[0] in ("lambda_src", "pipeline", "infra", "app"):
        return 4
    if parts == ["xorack"]:
        return 0
    name = parts[1]
    if name in CORE:
        return 0
    if name in ADAPTERS:
        return 1
    if name in SERVICES or name == "spark":
        return 2
    return 3  # cli, demo, local


def imports(path):
    """The modules of ours that a file imports when it is run, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module in ("xorack", "lambda_src"):
                yield from (f"{node.module}.{name.name}" for name in node.names)


def module_of(path):
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(
    path
    for folder in ("xorack", "lambda_src", "pipeline")
    for path in (ROOT / folder).rglob("*.py")
    if path != ROOT / "xorack" / "__init__.py"  # its names are loaded when they are used
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_point_down(path):
    own = module_of(path)
    for imported in imports(path):
        top = imported.split(".")[0]
        if top in ("xorack", "lambda_src", "pipeline", "infra"):
            assert layer(imported) <= layer(own), f"{own} imports {imported}"
        if layer(own) == 0:
            assert top not in ("boto3", "botocore", "click", "rich", "pyspark"), own


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
    loaded = loaded_by("from xorack import xor, traced, peel, unit_id; import xorack.exactly_once")
    assert not loaded & {"boto3", "botocore", "pyee", "asyncio"}


@pytest.mark.parametrize("handler", ["consumer", "sweeper", "widget"])
def test_handlers_load_no_more_than_they_use(handler):
    loaded = loaded_by(f"import lambda_src.{handler}")
    assert not loaded & {"pyee", "click", "rich", "pyspark", "pydantic", "moto", "aws_cdk"}
    # What each cold start would wait for: an event loop, and a class for every event there is.
    assert not loaded & {"asyncio", "aws_lambda_powertools.utilities.data_classes"}
    # Dead letters are rare: what sends them is loaded with the first.
    assert "xorack.sqs" not in loaded
    # Nor do they compile the direct API, or what reads ids back.
    assert not loaded & {"xorack.dynamodb", "xorack.memory", "xorack.peeling"}


def test_the_sweeper_does_without_the_consumer():
    assert "xorack.consume" not in loaded_by("import lambda_src.sweeper")


def test_the_direct_api_and_its_table_have_one_home_for_who_uses_both():
    from xorack import dynamodb, table

    assert dynamodb.DynamoDBStore is table.DynamoDBStore


def test_the_widget_only_looks():
    loaded = loaded_by("import lambda_src.widget")
    assert not loaded & {"aws_lambda_powertools", "xorack.consume", "xorack.sweep"}
