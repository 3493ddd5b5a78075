"""Requirements fit every supported Python, the lock file is complete, the audit reports it all."""

import json
import re
import sys
from importlib import metadata

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tools import dependencies, spark35
from tools.venv import DEV_LOCK, LOCK, OLDEST, REQUIREMENTS, ROOT, requirements_hash

PYTHONS = [f"3.{minor}" for minor in range(OLDEST[1], 15)]
HERE = "{}.{}".format(*sys.version_info)
LOCKS = {
    LOCK: REQUIREMENTS[:1],
    DEV_LOCK: REQUIREMENTS,
    **{lock: (source,) for source, lock in dependencies.OTHER_LOCKS.items()},
}
"""Lock file -> what it is made of."""


def parsed(*names: str) -> list[Requirement]:
    lines = [line for name in names for line in (ROOT / name).read_text().splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-r "))]


def chosen(python: str, requirements: list[Requirement]) -> list[Requirement]:
    """The requirements whose markers hold for a Python on this platform."""
    versions = {"python_version": python, "python_full_version": f"{python}.1"}
    environment = {**default_environment(), **versions}
    return [one for one in requirements if one.marker is None or one.marker.evaluate(environment)]


def lock_entries(lock: str = DEV_LOCK) -> list[tuple[Requirement, list[str]]]:
    """A lock's requirements and their hashes."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ").splitlines()
    parts = [re.split(r"\s+--hash=", line.strip()) for line in whole]
    return [(Requirement(required), hashes) for required, *hashes in parts]


def locked(python: str, lock: str = DEV_LOCK) -> dict[str, str]:
    """Name -> the one version that a Python is given."""
    versions: dict[str, str] = {}
    for wanted in chosen(python, [entry for entry, _ in lock_entries(lock)]):
        (pin,) = wanted.specifier
        name = canonicalize_name(wanted.name)
        assert pin.operator == "==", wanted
        assert name not in versions, wanted
        versions[name] = pin.version
    return versions


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_one_fitting_version_of_each_requirement(python, lock):
    versions = locked(python, lock)
    for wanted in chosen(python, parsed(*LOCKS[lock])):
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted


@pytest.mark.parametrize("python", PYTHONS)
def test_the_tests_add_packages_to_those_of_the_demo_and_replace_none(python):
    assert locked(python, LOCK).items() < locked(python, DEV_LOCK).items()


@pytest.mark.parametrize("lock", [LOCK, DEV_LOCK])
def test_the_lock_contains_all_dependencies_of_the_requirements(lock):
    versions = locked(HERE, lock)
    left = [(one.name, extra) for one in chosen(HERE, parsed(*LOCKS[lock]))
            for extra in ("", *one.extras)]  # fmt: skip
    seen = set()
    while left:
        name, extra = left.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in metadata.requires(name) or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                version = versions[canonicalize_name(wanted.name)]
                assert wanted.specifier.contains(version), f"{name} needs {line}"
                left += [(wanted.name, more) for more in ("", *wanted.extras)]
    assert len(seen) > 30


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_hashes_of_all_files_and_names_no_registry(lock):
    for wanted, hashes in lock_entries(lock):
        assert wanted.url is None
        assert hashes, wanted
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), wanted
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links|^\s*/", text, re.MULTILINE)


def test_the_locked_versions_are_installed_here():
    for name, version in locked(HERE).items():
        assert metadata.version(name) == version, name


def test_the_lock_names_the_hash_of_the_requirements_without_comments(tmp_path):
    for lock in (LOCK, DEV_LOCK):
        text = (ROOT / lock).read_text(encoding="utf-8")
        assert f"# Made of: {requirements_hash(ROOT)}\n" in text, "make lock"

    def hash_of(text: str) -> str:
        for name in REQUIREMENTS:
            (tmp_path / name).write_text(text)
        return requirements_hash(tmp_path)

    assert hash_of("a==1\n") == hash_of("# why\n\na==1\n") != hash_of("a==2\n")


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    "requirements",
    [
        parsed(*REQUIREMENTS, "xorack/local/requirements.txt"),
        [Requirement(line) for line in spark35.NEEDS],
        [Requirement(line) for line in dependencies.NEEDS],
    ],
    ids=["checkout", "spark35", "lock"],
)
def test_each_python_supports_the_pinned_versions(python, requirements):
    """Versions that are not installed here cannot be checked."""
    wanted = chosen(python, requirements)
    assert {one.name for one in wanted} == {one.name for one in requirements}
    installed = {one.metadata["Name"]: one for one in metadata.distributions()}
    for one in wanted:
        if (here := installed.get(one.name)) and one.specifier.contains(here.version):
            supported = SpecifierSet(here.metadata.get("Requires-Python") or "")
            assert supported.contains(f"{python}.0"), f"{one}: Python {supported}"


@pytest.mark.parametrize("minor", range(10, 14))
def test_spark_3_5_needs_python_3_10_or_3_11(minor):
    message = f"Python 3.10 or 3.11, not 3.{minor}: make test-spark35 PYTHON="
    problem = spark35.unsupported((3, minor, 7))
    assert problem is None if minor < 12 else message in problem


def test_spark_3_5_runs_all_test_files_but_those_named():
    folder = ROOT / "tests" / "spark"
    left_out = {*folder.glob("test_*.py")} - {*spark35.selected()}
    assert {path.name for path in left_out} == {f"test_{name}.py" for name in spark35.OTHERS}
    assert folder / "test_shipping.py" in spark35.selected()


def test_the_package_supports_the_same_oldest_python():
    supported = SpecifierSet(metadata.metadata("xorack")["Requires-Python"])
    assert supported == SpecifierSet(f">={'.'.join(map(str, OLDEST))}")


GOOD = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-2021-66", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "status", "message"),
    [
        ([GOOD], dependencies.CLEAN, "1 packages, no known vulnerability"),
        ([GOOD, BAD], dependencies.VULNERABLE, "b 2: PYSEC-2021-66, fixed in 3"),
        ([GOOD, SKIPPED], dependencies.NOT_AUDITED, "does not know 1 of 2 packages (c)"),
        ([BAD, SKIPPED], dependencies.VULNERABLE, "does not know 1 of 2 packages (c)"),
        ([], dependencies.NOT_AUDITED, "not audited"),
    ],
)
def test_an_audit_reports_vulnerable_and_unknown_packages(packages, status, message, capsys):
    assert dependencies.report(packages) == status
    printed = capsys.readouterr()
    assert message in printed.out + printed.err
    assert ("no known" in printed.out) == (status == dependencies.CLEAN)


UNREACHABLE = (
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.osv.dev', port=443): "
    "Max retries exceeded with url: /v1/query"
)
REPORT = f"""
arguments = sys.argv
assert arguments[-2:] == ['-s', 'osv'], arguments
report = arguments[arguments.index('--output') + 1]
open(report, 'w').write({json.dumps({"dependencies": [BAD]})!r})
sys.exit(1)
"""


@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        (REPORT, dependencies.VULNERABLE, "PYSEC-2021-66"),
        (f"sys.exit('Traceback:\\n  ...\\n' + {UNREACHABLE!r})", dependencies.NOT_AUDITED,
         "service at api.osv.dev cannot be reached from here"),
        ("sys.exit(3)", dependencies.NOT_AUDITED, "not audited: pip-audit failed"),
    ],
)  # fmt: skip
def test_an_audit_runs_pip_audit(script, status, message, tmp_path, capsys):
    program = tmp_path / "pip-audit"
    program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    program.chmod(0o755)
    assert dependencies.audit(tmp_path, ["-s", "osv"]) == status
    printed = capsys.readouterr()
    assert message in printed.out + printed.err
