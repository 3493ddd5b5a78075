"""The lock file holds what is required, whole, for every Python; the audit says what it knows."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import dependencies
from tools.venv import LOCK, OLDEST, REQUIREMENTS, ROOT, Environment, SetupError, made_of

PYTHONS = [f"3.{minor}" for minor in range(OLDEST[1], 15)]
HERE = "{}.{}".format(*sys.version_info)
TEXT = (ROOT / LOCK).read_text(encoding="utf-8")


def entries() -> list[tuple[Requirement, list[str]]]:
    """The lock's requirements and their hashes."""
    lines = [line for line in TEXT.splitlines() if line and not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ").splitlines()
    found = []
    for line in whole:
        required, *hashes = re.split(r"\s+--hash=", line.strip())
        found.append((Requirement(required), hashes))
    return found


def locked(python: str) -> dict[str, list[str]]:
    """Name -> the versions that a Python on this platform would be given."""
    environment = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.1",
    }
    chosen: dict[str, list[str]] = {}
    for wanted, _ in entries():
        if wanted.marker is None or wanted.marker.evaluate(environment):
            (pin,) = wanted.specifier
            assert pin.operator == "==", wanted
            chosen.setdefault(canonicalize_name(wanted.name), []).append(pin.version)
    return chosen


def required(python: str) -> list[Requirement]:
    lines = [line for name in REQUIREMENTS for line in (ROOT / name).read_text().splitlines()]
    wanted = [Requirement(line) for line in lines if line and not line.startswith(("#", "-r "))]
    environment = {"python_version": python, "python_full_version": f"{python}.1"}
    return [one for one in wanted if one.marker is None or one.marker.evaluate(environment)]


@pytest.mark.parametrize("python", PYTHONS)
def test_each_python_gets_one_version_of_all_that_is_required(python: str) -> None:
    chosen = locked(python)
    assert [name for name, versions in chosen.items() if len(versions) != 1] == []
    for wanted in required(python):
        (version,) = chosen[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(version), wanted


def test_nothing_that_is_needed_is_left_out() -> None:
    """pip is told not to look for dependencies: all of them are here."""
    chosen = locked(HERE)
    left = [(one.name, extra) for one in required(HERE) for extra in ("", *one.extras)]
    seen = set()
    while left:
        name, extra = left.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in metadata.requires(name) or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                (version,) = chosen[canonicalize_name(wanted.name)]
                assert wanted.specifier.contains(version), f"{name} needs {line}"
                left += [(wanted.name, more) for more in ("", *wanted.extras)]
    assert len(seen) > 50


def test_every_file_is_known_by_its_hash_and_no_registry_is_named() -> None:
    for wanted, hashes in entries():
        assert wanted.url is None
        assert hashes, wanted
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), wanted
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links|^\s*/", TEXT, re.MULTILINE)


def test_what_is_installed_here_is_what_is_locked() -> None:
    for name, (version,) in locked(HERE).items():
        assert metadata.version(name) == version, name


def test_the_lock_is_of_these_requirements() -> None:
    assert f"# Made of: {made_of(ROOT)}\n" in TEXT, "make lock"


def test_comments_do_not_make_a_lock_old(tmp_path: Path) -> None:
    for name in REQUIREMENTS:
        (tmp_path / name).write_text("a==1\n")
    before = made_of(tmp_path)
    (tmp_path / REQUIREMENTS[0]).write_text("# why\n\na==1\n")
    assert made_of(tmp_path) == before
    (tmp_path / REQUIREMENTS[0]).write_text("a==2\n")
    assert made_of(tmp_path) != before


def test_a_lock_of_other_requirements_is_not_installed(tmp_path: Path) -> None:
    for name in REQUIREMENTS:
        (tmp_path / name).write_text("a==1\n")
    (tmp_path / LOCK).write_text(f"# Made of: {made_of(tmp_path)}\n")
    (tmp_path / REQUIREMENTS[0]).write_text("a==2\n")
    with pytest.raises(SetupError, match="make lock renews"):
        Environment(tmp_path / ".venv", tmp_path).install()


GOOD = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-2021-66", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "status", "said"),
    [
        ([GOOD], dependencies.CLEAN, "1 packages, no known vulnerability"),
        ([GOOD, BAD], dependencies.VULNERABLE, "b 2: PYSEC-2021-66, fixed in 3"),
        ([GOOD, SKIPPED], dependencies.NOT_AUDITED, "knows nothing of 1 of 2 packages (c)"),
        ([BAD, SKIPPED], dependencies.VULNERABLE, "knows nothing of 1 of 2 packages (c)"),
        ([], dependencies.NOT_AUDITED, "not audited"),
    ],
)
def test_what_an_audit_says(
    packages: list[dict[str, object]],
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dependencies.told(packages) == status
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    assert ("no known" in printed.out) == (status == dependencies.CLEAN)


def fake_pip_audit(folder: Path, script: str) -> Path:
    program = folder / "pip-audit"
    program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    program.chmod(0o755)
    return folder


def test_a_service_that_is_not_reached_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The last line of what pip-audit says where names are not resolved.
    last = (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.osv.dev', port=443): "
        "Max retries exceeded with url: /v1/query"
    )
    programs = fake_pip_audit(tmp_path, f"sys.exit('Traceback:\\n  ...\\n' + {last!r})")
    assert dependencies.audit(programs, []) == dependencies.NOT_AUDITED
    assert "service at api.osv.dev cannot be reached from here" in capsys.readouterr().err


def test_the_report_is_read_and_arguments_are_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (
        "given = sys.argv\n"
        "assert given[-2:] == ['-s', 'osv'], given\n"
        "report = given[given.index('--output') + 1]\n"
        f"open(report, 'w').write({json.dumps({'dependencies': [BAD]})!r})\n"
        "sys.exit(1)"
    )
    programs = fake_pip_audit(tmp_path, script)
    assert dependencies.audit(programs, ["-s", "osv"]) == dependencies.VULNERABLE
    assert "PYSEC-2021-66" in capsys.readouterr().out
