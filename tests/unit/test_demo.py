"""The demo's parts, each on its own."""

import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from demo.assembly import Assembly
from demo.children import Children, Interrupted, interruptible
from demo.database import Database, gather_python, user_database
from demo.display import _LiveScreen, _PlainScreen, _print_result
from demo.errors import BadDatabase, DemoFailed
from demo.run import Result, Unacked, _why_not, _work_folder
from demo.watching import Ended, Seen
from xorack.core.chain import Chain

# -- the database ----------------------------------------------------------------------------------


def test_the_default_database_is_this_pythons_library(tmp_path):
    database = gather_python(tmp_path)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert database.folder == tmp_path / version
    copies = {p.relative_to(database.folder) for p in database.folder.rglob("*") if p.is_file()}
    assert len(copies) == database.files > 300
    assert {Path("json/decoder.py"), Path("os.py"), Path("asyncio/events.py")} <= copies
    assert not [path for path in copies if {"test", "tests", "site-packages"} & set(path.parts)]
    assert {path.suffix for path in copies} == {".py"}
    assert database.size == sum((database.folder / path).stat().st_size for path in copies)
    assert (database.folder / "os.py").read_bytes() == Path(os.__file__).read_bytes()


def test_what_is_no_text_of_the_library_stays_out(tmp_path):
    library, work = tmp_path / "lib", tmp_path / "work"
    (library / "json" / "tests").mkdir(parents=True)
    for name in (
        "os.py", "json/decoder.py", "json/tests/bad.py", "test/test_os.py", "README", ".hidden.py",
        "site-packages/theirs.py", "dist-packages/debians.py", "__pycache__/os.py", "config-3/x.py",
    ):  # fmt: skip
        path = library / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    (library / "latin.py").write_bytes(b"# caf\xe9")
    (library / "link.py").symlink_to("nowhere.py")
    database = gather_python(work, library)
    found = {str(p.relative_to(database.folder)) for p in database.folder.rglob("*.py")}
    assert found == {"os.py", "json/decoder.py"}
    # And again: what is gone from the library is gone from the copy.
    (library / "os.py").unlink()
    assert gather_python(work, library).files == 1
    assert not (database.folder / "os.py").exists()


def test_a_python_without_sources_is_named(tmp_path):
    with pytest.raises(BadDatabase, match=f"{tmp_path}/lib has no sources"):
        gather_python(tmp_path / "work", tmp_path / "lib")


def test_a_users_folder_is_counted_as_the_jobs_count_it(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("a.txt", "sub/b", ".hidden", ".git/c"):
        (tmp_path / name).write_text("12345")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "circle").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    database = user_database(Path("."))
    assert database.folder == tmp_path
    assert (database.files, database.size) == (4, 15)

    from pipeline.folder import list_files

    assert len(list_files(str(tmp_path))) == 4


def test_a_folder_that_is_no_database_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").write_text("x")
    for name, message in (
        ("gone", "gone: No such file or directory"),
        ("file", "file is not a folder"),
        ("empty", "empty has no files in it"),
    ):
        with pytest.raises(BadDatabase, match=f"{tmp_path}/{message}"):
            user_database(tmp_path / name)


# -- the synthesised stack -------------------------------------------------------------------------


class FakeSynth:
    """Stands for the synthesis: leaves a template, counts how often."""

    def __init__(self):
        self.calls = 0

    def run(self, command, *, cwd, environ, log):
        self.calls += 1
        assert command[1:3] == ["-m", "infra.synth"]
        template = Path(command[command.index("--out") + 1]) / "xorack.template.json"
        template.write_text("{}")
        return f"{template}\n"


@pytest.fixture
def checkout(tmp_path):
    for name in (
        "infra/stack.py",
        "lambda_src/consumer.py",
        "xorack/core/chain.py",
        "xorack/cli/x.py",
    ):
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    (tmp_path / "checkout" / "cdk.json").write_text("{}")
    return tmp_path / "checkout"


def test_the_stack_is_synthesised_once(checkout, tmp_path):
    assembly, synth = Assembly(checkout, tmp_path / "cdk"), FakeSynth()
    assert assembly.template is None
    made = assembly.synthesise(synth)
    assert assembly.template == made
    assert made.parent == tmp_path / "cdk"
    # What is not in the functions' code does not count.
    (checkout / "xorack" / "cli" / "x.py").write_text("2")
    (checkout / "xorack" / "__pycache__").mkdir()
    (checkout / "xorack" / "__pycache__" / "chain.pyc").write_text("2")
    assert assembly.template == made


@pytest.mark.parametrize(
    "name", ["infra/stack.py", "xorack/core/chain.py", "cdk.json", "infra/new.py"]
)
def test_the_stack_is_synthesised_again_when_a_source_changes(checkout, tmp_path, name):
    assembly = Assembly(checkout, tmp_path / "cdk")
    assembly.synthesise(FakeSynth())
    (checkout / name).write_text("2")
    assert assembly.template is None


@pytest.mark.parametrize("damage", ["template", "note", "both"])
def test_half_a_synthesis_is_none(checkout, tmp_path, damage):
    assembly = Assembly(checkout, tmp_path / "cdk")
    made = assembly.synthesise(FakeSynth())
    if damage in ("template", "both"):
        made.unlink()
    if damage in ("note", "both"):
        (tmp_path / "cdk" / "made-of.json").write_text('{"made_of"')
    assert assembly.template is None
    assert assembly.synthesise(FakeSynth()).is_file()


# -- child processes -------------------------------------------------------------------------------


def python(code):
    return [sys.executable, "-c", textwrap.dedent(code)]


def run(children, code, tmp_path):
    return children.run(python(code), cwd=tmp_path, environ=os.environ, log=tmp_path / "log")


def test_a_child_answers_with_what_it_printed(tmp_path):
    with Children() as children:
        told = run(children, "import sys; print('out'); print('err', file=sys.stderr)", tmp_path)
    assert told == "out\n"
    assert (tmp_path / "log").read_text() == "err\n"


def test_a_child_that_fails_is_told_in_one_line(tmp_path):
    with Children() as children:
        with pytest.raises(DemoFailed, match=r"^split: no such folder$"):
            run(children, "import sys; sys.exit('split: no such folder')", tmp_path)
        with pytest.raises(
            DemoFailed, match=rf"^ZeroDivisionError.* \(all of it: {tmp_path}/log\)$"
        ):
            run(children, "1/0", tmp_path)
        with pytest.raises(DemoFailed, match=r"^ended with status 3$"):
            run(children, "raise SystemExit(3)", tmp_path)


GRANDCHILD = """
    import subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open("pid", "w").write(str(child.pid))
    open("ready", "w").close()
    {then}
"""


def gone(pid, seconds=10):
    """Whether a process has ended, or does so soon."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into Linux's /proc")


@proc
def test_what_a_child_leaves_behind_ends_with_it(tmp_path):
    with Children() as children:
        run(children, GRANDCHILD.format(then="sys.exit(0)"), tmp_path)
    assert gone(int((tmp_path / "pid").read_text()))


@proc
def test_leaving_ends_what_still_runs(tmp_path):
    failure = []

    def work():
        try:
            run(children, GRANDCHILD.format(then="time.sleep(600)"), tmp_path)
        except DemoFailed as error:
            failure.append(error)

    with Children() as children:
        thread = threading.Thread(target=work)
        thread.start()
        while not (tmp_path / "ready").exists():
            time.sleep(0.05)
    thread.join(timeout=10)
    assert failure
    assert gone(int((tmp_path / "pid").read_text()))
    with pytest.raises(Interrupted):
        run(children, "pass", tmp_path)


@proc
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_children_too(tmp_path, number):
    # Whoever runs the tests under nohup has them ignore SIGHUP; so would the program then.
    program = f"""
        import signal, sys
        from pathlib import Path
        from demo.children import Children, Interrupted, interruptible
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        code = {textwrap.dedent(GRANDCHILD.format(then="time.sleep(600)"))!r}
        try:
            with interruptible(), Children() as children:
                children.run([sys.executable, "-c", code], cwd=Path({str(tmp_path)!r}),
                             environ={{}}, log=Path({str(tmp_path / "log")!r}))
        except KeyboardInterrupt:
            sys.exit(130)
    """
    parent = subprocess.Popen(python(program), cwd=Path(__file__).parents[2])
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
        assert parent.poll() is None
    parent.send_signal(number)
    assert parent.wait(timeout=20) == 130
    assert gone(int((tmp_path / "pid").read_text()))


def test_signals_are_as_before_after():
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


# -- its folder ------------------------------------------------------------------------------------


def test_the_folder_is_cleared_of_what_an_earlier_demo_left(tmp_path):
    work = tmp_path / "deep" / "work"
    for _ in range(2):
        with _work_folder(work) as folder:
            assert folder == work
            assert {path.name for path in work.iterdir()} == {"xorack-demo", "tmp"}
            (work / "words").mkdir()
            (work / "tmp" / "x").write_text("")
        assert {path.name for path in work.iterdir()} == {"xorack-demo", "words"}


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "poem.txt").write_text("mine")
    with pytest.raises(DemoFailed, match="is not the demo's"), _work_folder(tmp_path):
        pass
    assert (tmp_path / "words" / "poem.txt").read_text() == "mine"


def test_two_demos_do_not_share_a_folder(tmp_path):
    with _work_folder(tmp_path / "w"):
        (tmp_path / "w" / "words").mkdir()
        with (
            pytest.raises(DemoFailed, match="another demo is running"),
            _work_folder(tmp_path / "w"),
        ):
            pass
        assert (tmp_path / "w" / "words").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    expected = pytest.raises(DemoFailed, match=r"file: (Not a directory|File exists)")
    with expected, _work_folder(tmp_path / "file"):
        pass


# -- what it finds, and how that looks -------------------------------------------------------------


def test_why_a_chain_is_not_acked():
    told = Ended("t", "acked")
    assert _why_not(Chain("t", status="acked"), told) is None
    assert _why_not(Chain("t", status="acked"), None) == "acked, but its event did not come"
    assert _why_not(Chain("t", status="failed", reason="bad"), told) == "bad"
    left = Chain("t", status="open", started=1200, finished=1)
    assert _why_not(left, None) == "1,199 of 1,200 units are outstanding"


def result(**fields):
    return Result(
        **{
            "database": Database(Path("/db"), 3, 10, "a test"),
            "files": 3,
            "words": 12_345,
            "distinct": 678,
            "acked": 3,
            "unacked": (),
            "messages": 2,
            "invocations": 4,
            "errors": 0,
            "writes": 9,
            "counts": Path.cwd() / ".demo" / "counts",
            "commonest": (("self", 1000), ("is", 20)),
            "seconds": {"set up": 1.0, "split": 2.0, "count": 3.0, "all": 6.54},
            **fields,
        }
    )


def printed(result, **options):
    out = Console(file=io.StringIO(), markup=False, highlight=False, soft_wrap=True, **options)
    _print_result(out, result)
    return out.file.getvalue().splitlines()


def test_the_table_at_the_end():
    assert printed(result()) == [
        "",
        "files               3",
        "words               12,345 (678 different)",
        "chains acked        3 of 3",
        "SQS messages        2",
        "Lambda invocations  4",
        "DynamoDB writes     9",
        "seconds             6.5 (set up 1.0, split 2.0, count 3.0)",
        "counts              .demo/counts",
        "",
        "commonest words",
        "  1,000  self",
        "     20  is",
    ]


def test_chains_that_are_not_acked_are_named_with_their_reason():
    bad = tuple(Unacked(f"db/{n}\x1b[1m", "failed", "not UTF-8\nat 3") for n in range(25))
    found = result(acked=0, unacked=bad, errors=2, commonest=())
    assert not found.ok
    lines = printed(found)
    assert "Lambda errors       2" in lines
    at = lines.index("not acked")
    assert lines[at + 1] == "  db/0\\x1b[1m: failed: not UTF-8\\nat 3"
    assert len(lines) == at + 1 + 20 + 1
    assert lines[-1] == "  and 5 more"


def test_plain_lines_tell_what_happened_and_are_few(capsys):
    screen = _PlainScreen()
    screen.begin("split", "files to words")
    for opened in range(0, 101):
        screen.chains(Seen(opened), 100)
    screen.end("split", "done")
    for acked in range(0, 99):
        screen.chains(Seen(100, acked, 1), 100)
    screen.chains(Seen(100, 99, 1), 100)
    screen.chains(Seen(100, 99, 1), 100)
    lines = capsys.readouterr().out.splitlines()
    assert all(
        line[:6].strip().replace(".", "").isdigit() and line[6:10] == " s  " for line in lines
    )
    told = [line[10:] for line in lines]
    assert told[0] == "split: files to words ..."
    assert "split: done" in told
    assert told[-1] == "chains: 100 of 100 opened, 99 acked, 1 failed"
    assert "chains: 100 of 100 opened, 0 acked" in told
    assert len(told) < 8


def test_the_live_screen_shows_steps_and_bars():
    out = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with _LiveScreen(out) as screen:
        screen.begin("Java", "looking")
        screen.end("Java", "/usr/lib/java")
        screen.begin("split", "files to words")
        screen.chains(Seen(7, 3, 1), 10)
    last = out.file.getvalue().rpartition("✓")[2]
    assert "Java      /usr/lib/java" in last
    assert "split     files to words … 0 s" in last
    assert "7 of 10" in last
    assert "3 of 10 1 failed" in last


def test_the_live_screen_shows_where_it_stopped():
    out = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)

    def stopped():
        with _LiveScreen(out) as screen:
            screen.begin("split", "files to words")
            raise DemoFailed("x")

    with pytest.raises(DemoFailed):
        stopped()
    assert "✗ split" in out.file.getvalue()
