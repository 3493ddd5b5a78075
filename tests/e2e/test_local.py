"""`xorack local`: the stack runs in the background, and no file or process stays after its end."""

import os
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.conftest import ROOT, item_of, python
from tests.support.events import eventually
from tests.support.processes import members
from xorack.errors import NotRunningError
from xorack.local import assembly as assembly_module
from xorack.local import background


@pytest.fixture(scope="module", autouse=True)
def _folders(assembly, tmp_path_factory):
    """A state folder of these tests, and the template that other tests use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setattr(assembly_module, "find_template", lambda *_: assembly)
        yield
        background.stop()


@pytest.fixture
def home():
    """The folder that exists while it runs."""
    return background.state_folder() / "aws"


@pytest.fixture
def running():
    """A stack that runs, with or without chains."""
    return background.start()[0]


@pytest.fixture
def stopped():
    background.stop()


def shell(*commands):
    """Run commands in a shell with this checkout's `xorack` and `python`; return its stdout."""
    python = shlex.quote(sys.executable)
    functions = f'xorack() {{ {python} -m xorack.cli "$@"; }}; python() {{ {python} "$@"; }}'
    script = "\n".join(["set -e", functions, *commands])
    return subprocess.run(
        ["sh", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_the_example_names_the_line_that_is_missing(running):
    out = shell('eval "$(xorack local env)"', "python -m examples.track_orders")
    assert [line.rstrip() for line in out.splitlines()] == [
        "a worker: oil is out of stock",
        "order/17 acked",
        "order/18 failed timed out oil",
    ]


def test_a_reader_follows_until_it_is_interrupted_or_the_stack_ends(running):
    # A background job of a shell ignores the signal.
    program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program += "from xorack.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "local", "events", "--follow"]
    pipe = subprocess.PIPE
    readers = [
        subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) for _ in range(2)
    ]
    _, position = running.events()
    bus = running.stack.bus_name
    entries = [
        {"Source": source, "EventBusName": name, "DetailType": "acked", "Detail": '{"tag": "here"}'}
        for source, name in (("xorack", bus), ("xorack", "default"), ("else", bus))
    ]
    running.stack.client("events").put_events(Entries=entries)
    for reader in readers:
        assert any('"here"' in line for line in iter(reader.stdout.readline, ""))
    (event,), after = running.events(position)
    assert event["detail"] == {"tag": "here"}
    assert event["time"].endswith("Z")
    assert running.events(after) == ([], position + 3)
    interrupted, orphaned = readers
    interrupted.send_signal(signal.SIGINT)
    assert (interrupted.communicate(timeout=600)[1], interrupted.returncode) == ("", 0)
    background.stop()
    _, err = orphaned.communicate(timeout=600)
    assert (err.count("\n"), orphaned.returncode) == (1, 1)
    # The server ends before the folder that says so, perhaps while it answers.
    states = "is not running", "has ended", "does not respond"
    assert err.startswith(tuple(f"error: xorack local {state}" for state in states))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.org"},
        {"Sec-Fetch-Mode": "no-cors"},
        {"Host": "example.org:1234"},
    ],
    ids=str,
)
def test_web_pages_are_rejected(running, headers):
    url = f"http://127.0.0.1:{running.port}/2015-03-31/functions"
    urllib.request.urlopen(url, timeout=600).close()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=600)


def test_one_that_was_killed_is_noticed_and_replaced(running, home):
    running.stack.client("lambda").invoke(FunctionName=running.outputs["SweeperName"])
    assert len(members(running.pid)) >= 2  # ministack, and the function's worker
    os.kill(running.pid, signal.SIGKILL)
    assert eventually(lambda: not members(running.pid))
    with pytest.raises(NotRunningError, match="ended unexpectedly") as caught:
        background.find()
    assert running.log.exists()
    assert str(running.log) in str(caught.value)
    another, started = background.start()
    assert started
    assert another.pid != running.pid
    assert item_of(another.stack, "order/17") is None


def test_stop_ends_all_processes_and_removes_all_files(running, home):
    running.stack.client("lambda").invoke(FunctionName=running.outputs["SweeperName"])
    assert len(members(running.pid)) >= 2
    assert home.stat().st_mode & 0o777 == 0o700
    assert background.stop()
    assert members(running.pid) == []
    assert [path.name for path in home.parent.iterdir()] == ["lock"]
    assert not running.stack.aws.answers()
    assert not background.stop()


@pytest.mark.usefixtures("stopped")
def test_an_interrupted_start_leaves_nothing(home, monkeypatch):
    seen = []

    def fail(aws, template):
        seen.append(aws._process.pid)
        assert members(seen[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(background, "deploy", fail)
    with pytest.raises(KeyboardInterrupt):
        background.start()
    assert members(seen[0]) == []
    assert not home.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_two_starts_at_once_start_one():
    program = (
        "import sys; from pathlib import Path; from xorack.local import assembly, background\n"
        "assembly.find_template = lambda *_: Path(sys.argv[1])\n"
        "running, started = background.start(); print(running.pid, started)"
    )
    template = str(assembly_module.find_template())
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: python("-c", program, template).stdout.split(), range(2)))
    (pid, first), (other, second) = both
    assert pid == other
    assert sorted([first, second]) == ["False", "True"]
