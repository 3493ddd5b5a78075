"""The embedded AWS's virtual environment is made once, and whole."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from xorack.local import environment
from xorack.local.errors import EnvironmentFailed

pytestmark = pytest.mark.embedded


@pytest.fixture
def requirements(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text("# nothing\n")
    return path


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "made" / "here"


def test_it_is_made_once_and_again_when_it_is_half_made_or_made_of_something_else(
    directory, requirements
):
    # As an interrupted install leaves it: a Python is there, and something broken beside it.
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "python").write_text("not a Python")
    (directory / "rest").write_text("of before")
    told = []
    threads = [
        threading.Thread(
            target=environment.ensure, args=(directory, requirements), kwargs={"tell": told.append}
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1  # all three wanted it, one made it
    assert str(directory) in told[0]
    assert not (directory / "rest").exists()

    python = environment.ensure(directory, requirements, tell=told.append)
    assert len(told) == 1
    prefix = subprocess.check_output([python, "-c", "import sys; print(sys.prefix)"], text=True)
    assert prefix.strip() == str(directory)

    (directory / "rest").write_text("of before")
    requirements.write_text("# still nothing\n")
    assert environment.ensure(directory, requirements, tell=told.append) == python
    assert len(told) == 2
    assert not (directory / "rest").exists()


def test_what_cannot_be_installed_is_named_in_one_line(directory, requirements):
    requirements.write_text("./no-such-package\n")
    with pytest.raises(EnvironmentFailed, match="no-such-package") as caught:
        environment.ensure(directory, requirements)
    assert "\n" not in str(caught.value)
    # And the next attempt does not take what is left of this one for whole.
    with pytest.raises(EnvironmentFailed, match="no-such-package"):
        environment.ensure(directory, requirements)


def test_a_place_where_nothing_can_be_made_is_named(tmp_path, requirements):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailed, match="file"):
        environment.ensure(tmp_path / "file" / "here", requirements)


def test_the_command_line_says_what_failed(tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "xorack.local.environment", "--directory", str(tmp_path / "file/x")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: cannot make ")
    assert done.stderr.count("\n") == 1
