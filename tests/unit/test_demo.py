"""The demo's parts, one by one."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from demo.assembly import cached_template, synthesise
from demo.children import Children, Interrupted, interruptible
from demo.database import copy_standard_library, open_database
from demo.errors import DemoFailed, InvalidDatabase
from demo.run import _work_folder

# -- the database ----------------------------------------------------------------------------------


def test_the_default_database_is_this_pythons_library(tmp_path):
    database = copy_standard_library(tmp_path)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert database.folder == tmp_path / version
    copies = {p.relative_to(database.folder) for p in database.folder.rglob("*") if p.is_file()}
    assert len(copies) == database.files > 300
    assert {Path("json/decoder.py"), Path("os.py"), Path("asyncio/events.py")} <= copies
    assert not [path for path in copies if {"test", "tests", "site-packages"} & set(path.parts)]
    assert {path.suffix for path in copies} == {".py"}
    assert database.size == sum((database.folder / path).stat().st_size for path in copies)
    assert (database.folder / "os.py").read_bytes() == Path(os.__file__).read_bytes()


def test_the_copy_has_valid_sources_only(tmp_path):
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
    database = copy_standard_library(work, library)
    copied = {str(p.relative_to(database.folder)) for p in database.folder.rglob("*.py")}
    assert copied == {"os.py", "json/decoder.py"}
    # A second copy replaces the first.
    (library / "os.py").unlink()
    assert copy_standard_library(work, library).files == 1
    assert not (database.folder / "os.py").exists()


def test_a_python_without_sources_is_named(tmp_path):
    with pytest.raises(InvalidDatabase, match=f"{tmp_path}/lib has no sources"):
        copy_standard_library(tmp_path / "work", tmp_path / "lib")


def test_a_users_folder_has_the_files_that_the_jobs_read(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("a.txt", "sub/b", ".hidden", ".git/c"):
        (tmp_path / name).write_text("12345")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "circle").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    database = open_database(Path("."))
    assert database.folder == tmp_path
    assert (database.files, database.size) == (4, 15)

    from pipeline.folder import list_files

    assert len(list_files(str(tmp_path))) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", "gone: No such file or directory"),
        ("file", "file is not a folder"),
        ("empty", "empty has no files in it"),
    ],
)
def test_an_invalid_database_is_named(tmp_path, name, message):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").write_text("x")
    with pytest.raises(InvalidDatabase, match=f"{tmp_path}/{message}"):
        open_database(tmp_path / name)


# -- the synthesised stack -------------------------------------------------------------------------


class FakeSynthesis:
    """Stands for the child process: leaves a template."""

    def run(self, command, *, cwd, environ, log):
        assert command[1:3] == ["-m", "infra.synth"]
        template = Path(command[command.index("--out") + 1]) / "xorack.template.json"
        template.write_text("{}")
        return f"{template}\n"


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    for name in ("infra/a.py", "lambda_src/a.py", "xorack/core/a.py", "xorack/cli/a.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1")
    (root / "cdk.json").write_text("{}")
    return root


def test_the_stack_is_synthesised_once(checkout, tmp_path):
    assert cached_template(checkout, tmp_path / "cdk") is None
    made = synthesise(checkout, tmp_path / "cdk", FakeSynthesis())
    assert made.parent == tmp_path / "cdk"
    # Files that are not in the functions' code do not count.
    (checkout / "xorack" / "cli" / "a.py").write_text("2")
    (checkout / "xorack" / "__pycache__").mkdir()
    (checkout / "xorack" / "__pycache__" / "chain.pyc").write_text("2")
    assert cached_template(checkout, tmp_path / "cdk") == made


@pytest.mark.parametrize("name", ["infra/a.py", "xorack/core/a.py", "cdk.json", "infra/new.py"])
def test_a_changed_source_needs_a_new_synthesis(checkout, tmp_path, name):
    synthesise(checkout, tmp_path / "cdk", FakeSynthesis())
    (checkout / name).write_text("2")
    assert cached_template(checkout, tmp_path / "cdk") is None


@pytest.mark.parametrize("damage", ["template", "fingerprint"])
def test_an_incomplete_synthesis_does_not_count(checkout, tmp_path, damage):
    made = synthesise(checkout, tmp_path / "cdk", FakeSynthesis())
    if damage == "template":
        made.unlink()
    else:
        (tmp_path / "cdk" / "made-of.json").write_text('{"made_of"')
    assert cached_template(checkout, tmp_path / "cdk") is None
    assert synthesise(checkout, tmp_path / "cdk", FakeSynthesis()).is_file()


# -- child processes -------------------------------------------------------------------------------


def python(code):
    return [sys.executable, "-c", textwrap.dedent(code)]


def run(children, code, tmp_path):
    return children.run(python(code), cwd=tmp_path, environ=os.environ, log=tmp_path / "log")


def test_a_childs_stdout_is_returned(tmp_path):
    with Children() as children:
        output = run(children, "import sys; print('out'); print('err', file=sys.stderr)", tmp_path)
    assert output == "out\n"
    assert (tmp_path / "log").read_text() == "err\n"


def test_a_failed_child_is_explained_in_one_line(tmp_path):
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
    """Return whether a process ends soon."""
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
def test_a_childs_own_children_end_with_it(tmp_path):
    with Children() as children:
        run(children, GRANDCHILD.format(then="sys.exit(0)"), tmp_path)
    assert gone(int((tmp_path / "pid").read_text()))


@proc
def test_leaving_ends_running_children(tmp_path):
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
    # Under nohup the tests ignore SIGHUP, and so would the program.
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


def test_signal_handlers_are_restored():
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


# -- its folder ------------------------------------------------------------------------------------


def test_an_earlier_demos_output_is_removed(tmp_path):
    work = tmp_path / "deep" / "work"
    for _ in range(2):
        with _work_folder(work) as folder:
            assert folder == work
            assert {path.name for path in work.iterdir()} == {"xorack-demo", "tmp"}
            (work / "words").mkdir()
            (work / "tmp" / "x").write_text("")
        assert {path.name for path in work.iterdir()} == {"xorack-demo", "words"}


def test_a_folder_with_other_files_is_left_alone(tmp_path):
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
