"""The files of a database, the tasks that read them, and the merged results of the tasks."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from pipeline.errors import JobError
from pipeline.files import POSITION_BITS, Said, gathered, position_of
from pipeline.folder import Found, list_files, opened
from pipeline.reading import PIECE, Encoding, UnreadableFile
from pipeline.scan import tasks_of
from xorack import traced, unit_id, xor

UTF8 = Encoding("utf-8", 1)


@pytest.fixture
def root(tmp_path):
    for name in ("b.txt", "a.py", "sub/c.txt", ".hidden", ".git/config", "a b%20[1].txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    (tmp_path / "link.txt").symlink_to("b.txt")
    (tmp_path / "nowhere.txt").symlink_to("gone")
    (tmp_path / "again").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.txt")
    return tmp_path


def names(files):
    return [file.relative for file in files]


def test_files_and_links_are_listed(root):
    found = list_files(str(root))
    expected = ["a b%20[1].txt", "a.py", "b.txt", "link.txt", "nowhere.txt", "sub/c.txt"]
    assert names(found) == expected
    problems = {file.relative: file.problem for file in found if file.problem}
    assert problems == {"nowhere.txt": "cannot be read: No such file or directory"}
    assert {f.relative: f.size for f in found}["link.txt"] == len("b.txt")


def test_patterns(root):
    assert names(list_files(str(root), "*.py")) == ["a.py"]
    assert names(list_files(str(root), "sub/*")) == ["sub/c.txt"]
    assert names(list_files(str(root), exclude=["*.txt"])) == ["a.py"]
    assert names(list_files(str(root), "*", hidden=True))[:2] == [".git/config", ".hidden"]
    assert names(list_files(f"file://{root}", "a.*")) == ["a.py"]


def test_a_file_name_can_be_invalid_utf_8(root):
    path = os.path.join(os.fsencode(root), b"caf\xe9.txt")
    with open(path, "wb") as file:
        file.write(b"text")
    found = list_files(str(root), "caf*")
    assert names(found) == ["caf\\xe9.txt"]
    with opened(found[0].path, 4) as file:
        assert file.read() == b"text"


@pytest.mark.parametrize(
    ("place", "message"),
    [("nothing", "No such file"), ("b.txt", "is not a folder"), ("empty", "has no files")],
)
def test_an_invalid_database_is_named(root, place, message):
    (root / "empty").mkdir()
    with pytest.raises(JobError, match=message) as raised:
        list_files(str(root / place))
    assert str(root / place) in str(raised.value)


def test_an_unknown_file_system_is_named():
    with pytest.raises(JobError, match="database nothing://x"):
        list_files("nothing://x")


@pytest.mark.parametrize("place", ["s3a://bucket/books", "s3n://bucket/books"])
def test_uris_of_hadoop_for_s3(place, monkeypatch):
    uris = []

    def from_uri(uri):
        uris.append(uri)
        raise OSError("no bucket")

    monkeypatch.setattr("pyarrow.fs.FileSystem", SimpleNamespace(from_uri=from_uri))
    with pytest.raises(JobError, match=f"database {place}: no bucket"):
        list_files(place)
    assert uris == ["s3://bucket/books"]


def test_uris_are_opened_by_the_file_systems_of_pyarrow(root):
    path = f"file://{root}/b.txt".encode()
    with opened(path, 5) as file:
        assert file.read() == b"b.txt"


def test_a_changed_or_missing_file_is_an_error(root):
    path = os.fsencode(root / "b.txt")
    with pytest.raises(UnreadableFile, match="from 3 to 5 bytes"), opened(path, 3):
        pass
    with pytest.raises(UnreadableFile, match="cannot be read: No such file"), opened(b"/no", 3):
        pass


def test_tasks_cover_every_file_once():
    sizes = [0, 1, PIECE, PIECE + 1, 200 * PIECE + 17, *range(3000)]
    files = [(key, Found(str(key), b"%d" % key, size)) for key, size in enumerate(sizes)]
    for encoding in (UTF8, Encoding("shift-jis", 0)):
        tasks = tasks_of(files, encoding, 2)
        assert all(tasks)
        covered: dict[int, int] = {}
        for part in (part for task in tasks for part in task):
            assert covered.get(part.number, 0) == part.start
            assert part.start % PIECE == 0
            assert part.end == part.size or part.end % PIECE == 0
            covered[part.number] = part.end
        assert covered == dict(enumerate(sizes))
        assert max(len(task) for task in tasks) <= 2000
    most = max(sum(p.end - p.start for p in task) for task in tasks_of(files, UTF8, 2))
    assert most <= 32 * PIECE


def test_results_of_the_parts_of_a_file_are_merged():
    parts = [traced(unit_id(at)) for at in range(3)]
    tasks = [
        {0: Said(5, parts[0], bounds=0b0110), 7: Said(1, parts[1], bounds=-1)},
        {0: Said(7, parts[2], bounds=0b1010)},
    ]
    assert gathered(tasks) == {
        0: Said(12, xor(parts[0], parts[2]), bounds=0b1100),
        7: Said(1, parts[1], bounds=-1),
    }
    assert tasks[0][0] == Said(5, parts[0], bounds=0b0110)
    assert gathered([]) == {}


def test_the_error_of_a_file_does_not_depend_on_the_order_of_its_tasks():
    tasks = [{2: Said(error="is no text")}, {2: Said(9, traced(1))}, {2: Said(error="gone")}]
    for order in (tasks, tasks[::-1]):
        assert gathered(order)[2] == Said(9, traced(1), "gone")


def test_positions():
    assert position_of((7 << POSITION_BITS) + 12) == 12
