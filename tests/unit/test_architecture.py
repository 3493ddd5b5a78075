"""A folder imports only from folders below it, and imports stay lean."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HOUSE = [
    "tests/unit",
    "tests/spark",
    "tests/property",
    "tests/infrastructure",
    "tests/conformance",
    "tests/browser",
    "tests/functional",
    "tests/e2e",
    "tests/engines",
    "tests/simulation",
    "tools",
    "bench",
    "tests/support",
    "demo",
    "examples",
    "pipeline",
    "lambda_src",
    "infra",
    "xorack/cli",
    "xorack/web",
    "xorack/compat",
    "xorack/spark",
    "xorack/local",
    "xorack/ops",
    "xorack/testing",  # a module of its own
    "xorack/cdk",
    "xorack/acker",
    "xorack/client",
    "xorack/aws",
    "xorack/errors",  # a module of its own
    "xorack/core",
]
"""The folders, the highest first. A folder imports only from folders further down, and itself."""

FLOOR = {folder: number for number, folder in enumerate(reversed(HOUSE))}
PACKAGE_FLOOR = FLOOR["xorack/compat"]
"""Names of the package itself, such as ``xorack.traced``, come from the highest of its classes."""


def folder_of(module):
    """Return the folder of this project that holds a module, or None."""
    top, *rest = module.split(".")
    if top in ("xorack", "tests") and rest[:1] != ["_lazy"]:  # it imports nothing of the project
        return "/".join([top, *rest[:1]])
    return top if top in FLOOR else None


@cache
def imports(path):
    """Return the modules that a file imports, also in functions and by name in a string."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*package, *filter(None, [node.module])])
            modules |= {module, *(f"{module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Constant) and is_module(node.value):
            modules.add(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_names":
            homes = ast.literal_eval(node.args[1])
            modules |= {f"xorack.{home}.{name}" for home in homes for name in homes[home].split()}
    return modules


def is_module(text):
    """Return whether a text names a module of `xorack`, as `import_module` takes it."""
    if not isinstance(text, str) or not re.fullmatch(r"xorack(\.\w+)+", text):
        return False
    path = ROOT.joinpath(*text.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def files_of(folder):
    """Return the Python files of a folder, or the file of a module."""
    return [*(ROOT / folder).rglob("*.py")] or [ROOT / f"{folder}.py"]


def imported_by(folder):
    return {module for path in files_of(folder) for module in imports(path)}


@pytest.mark.parametrize("folder", FLOOR)
def test_a_folder_imports_only_from_folders_below(folder):
    upwards = [
        module
        for module in imported_by(folder)
        if (other := folder_of(module)) not in (None, folder, "xorack", "tests")
        and FLOOR.get(other, PACKAGE_FLOOR) >= FLOOR[folder]
    ]
    assert upwards == []


@pytest.mark.parametrize("folder", FLOOR)
def test_the_modules_of_a_folder_import_each_other_in_no_circle(folder):
    """Also not for types alone: data is below, verbs are on top."""
    names = {
        path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files_of(folder)
    }
    # A package's `__init__` has the package's name.
    paths = {name.removesuffix(".__init__"): path for path, name in names.items()}
    graph = {module: paths.keys() & imports(path) - {module} for module, path in paths.items()}
    for module, found in graph.items():
        # `from package import module` takes nothing of the package itself.
        for package in {one.rpartition(".")[0] for one in found} & found:
            names = {one for one in imports(paths[module]) if one.rpartition(".")[0] == package}
            graph[module] -= set() if names - paths.keys() else {package}
    TopologicalSorter(graph).prepare()


def test_the_ledger_of_windows_is_pure():
    """It lies in the room of windows on Spark, and knows nothing of Spark."""
    taken = imports(ROOT / "xorack/spark/windows/ledger.py")
    tops = {one.split(".")[0] for one in taken} - {*sys.stdlib_module_names}
    assert tops == {"xorack"}
    assert {folder_of(one) for one in taken} <= {None, "xorack/errors", "xorack/core"}


def test_spark_and_the_operators_programs_know_nothing_of_each_other():
    programs = {f"xorack/{name}" for name in ("cli", "local", "ops", "web")}
    assert not programs & {folder_of(module) for module in imported_by("xorack/spark")}
    upper = {folder for folder in FLOOR if folder in programs}
    assert "xorack/spark" not in {folder_of(one) for folder in upper for one in imported_by(folder)}


def test_every_folder_has_a_floor():
    listed = ["git", "ls-files", "*.py"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True)
    folders = {Path(name).parent for name in files.stdout.split()}
    homes = {"xorack", "tests", "."}
    homeless = [
        one
        for one in folders
        if one.as_posix() not in homes
        and not {one.as_posix(), *(above.as_posix() for above in one.parents)} & {*FLOOR}
    ]
    assert homeless == []
    assert [path for folder in FLOOR for path in files_of(folder) if not path.exists()] == []


AWS = {"boto3", "botocore"}
SLOW = {"asyncio", "pyee"}
# A cold start must not load what few invocations need: dead letters and peeling.
FUNCTION = {"xorack.aws.sqs", "xorack.core.peeling", "xorack.client", *SLOW}
FUNCTION |= {"click", "rich", "pydantic", "moto", "aws_cdk", "pyspark"}
FUNCTION |= {"aws_lambda_powertools.utilities.data_classes"}


IMPORTS = [
    [
        ("import xorack", AWS | SLOW | {"xxhash", "pyspark"}),
        ("from xorack import xor, traced, peel, unit_id", AWS | SLOW),
        ("from xorack import names_of", AWS | SLOW),
        ("import xorack.acker.chain_writer", AWS | SLOW),
        ("from xorack import fan_in", SLOW | {"aws_lambda_powertools"}),
    ],
    [
        ("import lambda_src.sweeper", FUNCTION | {"xorack.acker.consumer"}),
        ("import lambda_src.consumer", FUNCTION),
    ],
]
"""Imports of one process each, in their order, and what must not be loaded after each."""


@pytest.mark.parametrize("statements", IMPORTS)
def test_an_import_does_not_load(statements):
    code = "import sys\n" + "".join(f"{one}\nprint(*sys.modules)\n" for one, _ in statements)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    loaded = run.stdout.decode().splitlines()
    for (statement, excluded), modules in zip(statements, loaded, strict=True):
        assert not excluded & set(modules.split()), statement


def test_the_core_imports_only_the_standard_library():
    tops = {module.split(".")[0] for module in imported_by("xorack/core")}
    assert tops - {*sys.stdlib_module_names} == {"xorack", "xxhash", "typing_extensions"}  # types
    assert not tops & {"logging", "random", "secrets", "time"}  # the caller passes what they give


def test_the_construct_shares_only_names_and_the_table_check_with_the_rest():
    ours = {module for module in imported_by("xorack/cdk") if module.startswith("xorack.")}
    core = ("xorack.core.budget", "xorack.core.errors")
    allowed = ("xorack._lazy", "xorack.cdk", "xorack.aws.schema", "xorack.aws.table_check", *core)
    assert [module for module in ours if not module.startswith(allowed)] == []


@pytest.mark.parametrize("service", ["consumer", "outbox", "sweeper"])
def test_a_service_does_not_reach_through_another(service):
    """Ruff's SLF001 forbids the private parts of others, everywhere."""
    text = (ROOT / f"xorack/acker/{service}.py").read_text(encoding="utf-8")
    assert re.findall(r"self\.(?:outbox|reporter|writer)\.\w+\.\w+", text) == []


TIME = re.compile(r"(.*_)?(age|delay|duration|interval|pause|retention|timeout|wait)")
PUBLIC = {"timeout", "idle_timeout"}
"""The protocol's own names: seconds or, where Python gives them, a timedelta."""


@pytest.mark.parametrize("folder", sorted({one.split("/")[0] for one in FLOOR} - {"tests"}))
def test_a_number_of_time_has_its_unit_in_the_name(folder):
    unnamed = [
        f"{path}:{node.lineno}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.arg, ast.AnnAssign))
        and node.annotation is not None
        and TIME.fullmatch(name := getattr(node, "arg", None) or ast.unparse(node.target))
        and name not in PUBLIC
        and {"int", "float"} & {*re.findall(r"\w+", ast.unparse(node.annotation))}
    ]
    assert unnamed == []


@cache
def lines_of_code(text):
    """Return the numbers of the lines that hold code: no comment, docstring or blank line."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return lines


NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


@pytest.mark.parametrize("folder", FLOOR)
def test_a_function_has_at_most_40_lines_of_code(folder):
    long = set()
    for path in files_of(folder):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            span = range(node.lineno, node.end_lineno + 1)
            if len(span) > 40 and len(lines_of_code(text).intersection(span)) > 40:
                long.add(f"{path.relative_to(ROOT)} {node.name}")
    assert long == set()
