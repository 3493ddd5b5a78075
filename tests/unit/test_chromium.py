"""Which browser the tests use."""

import platform

import pytest

from tools import chromium


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without a browser, and one that npm would install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(chromium, "_install", lambda: tmp_path / "npm")
    return tmp_path


def program(path):
    path.write_text("")
    path.chmod(0o755)
    return str(path)


def test_the_named_one_is_first_then_the_machines_then_that_of_npm(machine, monkeypatch):
    assert chromium.find() == str(machine / "npm")
    found = program(machine / "google-chrome")
    assert chromium.find() == found
    named = program(machine / "mine")
    monkeypatch.setenv("CHROMIUM", "mine")
    assert chromium.find() == named
    monkeypatch.setenv("CHROMIUM", "gone")
    with pytest.raises(chromium.NoChromium, match="there is no gone: CHROMIUM names it"):
        chromium.find()


def test_a_machine_that_npm_has_none_for_is_named(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(chromium.NoBuild, match="no Chromium for Linux riscv64: install"):
        chromium._install()
