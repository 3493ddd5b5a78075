"""The demo's parts, one by one."""

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from demo.chains import RunMonitor
from demo.database import DemoFailed
from demo.display import Result, print_result
from demo.loss import LostWord
from demo.run import work_folder
from tests.support.chains import changed, make_chain
from tests.support.events import eventually
from tests.support.memory_store import MemoryStore
from xorack.cdk.code import handlers_closure
from xorack.cli import screen
from xorack.errors import LocalError
from xorack.local import assembly
from xorack.local.program import run_program

ROOT = Path(__file__).parents[2]


def write_files(folder, *names, text="1"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_change_of_any_code_of_the_functions_needs_a_new_synthesis():
    deployed = {part for path in handlers_closure(ROOT) for part in path.relative_to(ROOT).parts}
    assert not deployed & assembly._NOT_DEPLOYED


def python(code):
    return [sys.executable, "-c", textwrap.dedent(code)]


def run(code, folder):
    return run_program(python(code), cwd=folder, environ=os.environ, log=folder / "log")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; print('out'); print('err', file=sys.stderr)", None),
        ("import sys; sys.exit('split: no such folder')", "^split: no such folder$"),
        ("1/0", r"^ZeroDivisionError.* \(all of it: .*/log\)$"),
        ("raise SystemExit(3)", "^ended with status 3$"),
    ],
)
def test_a_childs_stdout_is_returned_or_its_failure_explained_in_one_line(tmp_path, code, message):
    if message is None:
        assert run(code, tmp_path) == "out\n"
        assert (tmp_path / "log").read_text() == "err\n"
    else:
        with pytest.raises(LocalError, match=message):
            run(code, tmp_path)


GRANDCHILD = """
    import fcntl, os, subprocess, sys, time
    held = open("held.new", "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    subprocess.Popen(sleep, pass_fds=[held.fileno()])
    os.rename("held.new", "held")
    time.sleep({seconds})
"""


def grandchild(folder):
    """Wait for the process that `GRANDCHILD` starts, and return the file that it holds locked."""
    assert eventually((folder / "held").exists)
    return folder / "held"


def ends(held):
    def has_ended():
        with held.open() as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    return eventually(has_ended)


def test_a_signal_ends_the_children_too(tmp_path):
    program = f"""
        import signal
        import sys
        from pathlib import Path
        from demo.run import interrupt_on_signals
        from xorack.local.program import run_program
        code = {textwrap.dedent(GRANDCHILD.format(seconds=600))!r}
        folder = Path({str(tmp_path)!r})
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            interrupt_on_signals()
            command = [sys.executable, "-c", code]
            run_program(command, cwd=folder, environ={{}}, log=folder / "log")
        except KeyboardInterrupt:
            sys.exit(130)
    """
    parent = subprocess.Popen(python(program), cwd=ROOT)
    held = grandchild(tmp_path)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(timeout=600) == 130
    assert ends(held)


def test_a_folder_of_others_is_named_and_left_alone(tmp_path):
    write_files(tmp_path, "own/words/poem.txt", "file", text="mine")
    with work_folder(tmp_path / "w") as work:
        write_files(work, "words/x")
        for folder, problem in (
            (work, "another demo is running"),
            (tmp_path / "own", "is not a folder of the demo"),
            (tmp_path / "file", r"file: (Not a directory|File exists)"),
        ):
            with pytest.raises(DemoFailed, match=problem), work_folder(folder):
                pass
        assert (work / "words" / "x").exists()
    assert (tmp_path / "own" / "words" / "poem.txt").read_text() == "mine"


def test_the_demo_waits_for_the_notes_that_name_the_lost_words():
    """The queue has no order: a note may come after the last request that ends a chain."""
    store = MemoryStore()
    store.chains = {tag: make_chain(tag) for tag in ("demo/file/a", "demo/file/b")}

    def note(store=store):
        for tag in store.chains:
            time.sleep(0.3)
            store.chains[tag] = changed(store.chains[tag], note='{"missing": ["07"]}')

    with RunMonitor(store, 2, lambda *_: None) as monitor, ThreadPoolExecutor() as pool:
        pool.submit(note)
        assert monitor.wait_for_notes([*store.chains], 10)
        assert all(chain.note for chain in store.chains.values())


@pytest.mark.parametrize("named", [[], [LostWord("a.py", 7, "whale", "paging: OFFSET skipped it")]])
def test_a_demo_whose_events_name_fewer_words_than_were_lost_is_not_good(capsys, named):
    count = {"words": 9, "missing": 1, "distinct": 9}
    split = {"files": 2, "words": 10}
    result = Result(split, count, 1, [], named, 9, {}, "counts")
    print_result(screen.console(), result)
    said = f"xorack       1 word lost; the events of the failed files name {len(named)}"
    assert said in capsys.readouterr().out
    assert result.is_good == bool(named)
