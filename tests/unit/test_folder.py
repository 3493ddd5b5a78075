"""The files of a database, and the folders that jobs write to."""

from __future__ import annotations

import os

import pytest

from pipeline.folder import JobError, claim, list_files, opened


@pytest.fixture
def root(tmp_path):
    hidden = (".hidden", ".git/config", "_SUCCESS", "_temporary/0/part.txt", "x._COPYING_")
    for name in ("b.txt", "a.py", "sub/c.txt", "a b%20[1].txt", "_a=1/d.txt", *hidden):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "link.txt").symlink_to("b.txt")
    (tmp_path / "nowhere.txt").symlink_to("gone")
    (tmp_path / "again").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.txt")
    return tmp_path


def names(files):
    return [file.relative for file in files]


def test_files_and_links_are_listed(root):
    found, skipped = list_files(str(root))
    visible = ["_a=1/d.txt", "a b%20[1].txt", "a.py", "b.txt"]
    assert names(found) == [*visible, "link.txt", "nowhere.txt", "sub/c.txt"]
    hidden = [".git", ".hidden", "_SUCCESS", "_temporary", "x._COPYING_"]
    others = [("linked", "again"), ("special", "pipe.txt")]
    assert sorted(skipped) == [*(("hidden", name) for name in hidden), *others]
    problems = {file.relative: file.problem for file in found if file.problem}
    assert problems == {"nowhere.txt": "cannot be read: No such file or directory"}
    assert {f.relative: f.size for f in found}["link.txt"] == len("b.txt")


def test_a_file_name_can_be_invalid_utf_8(root):
    path = os.path.join(os.fsencode(root), b"caf\xe9.txt")
    with open(path, "wb") as file:
        file.write(b"text")
    (found,) = [one for one in list_files(str(root)).files if one.relative == "caf\\xe9.txt"]
    with opened(found.path, 4) as file:
        assert file.read() == b"text"


@pytest.mark.parametrize(
    ("place", "message"),
    [("nothing", "No such file"), ("b.txt", "Not a directory"), ("empty", "has no files")],
)
def test_an_invalid_database_is_named(root, place, message):
    (root / "empty").mkdir()
    with pytest.raises(JobError, match=message) as raised:
        list_files(str(root / place))
    assert str(root / place) in str(raised.value)


def test_two_files_that_look_the_same_are_an_error(root):
    for name in (b"caf\xe9.txt", b"caf\\xe9.txt"):
        with open(os.path.join(os.fsencode(root), name), "wb"):
            pass
    with pytest.raises(JobError, match="has two files whose names are equal"):
        list_files(str(root))


def test_a_folder_belongs_to_the_run_that_claimed_it(tmp_path):
    place = str(tmp_path / "deep" / "out")
    claim("--words", place, "r1")
    file = tmp_path / "deep" / "out" / "part.parquet"
    file.write_text("data")
    claim("--words", f"file://{place}", "r1", keep=True)
    assert file.exists()
    claim("--words", place, "r1")
    assert not file.exists()
    with pytest.raises(JobError, match=f"--counts {place} already exists, from the run 'r1'"):
        claim("--counts", place, "r2", keep=True)
    file.write_text("data")
    (tmp_path / "deep" / "out" / "_run").unlink()
    with pytest.raises(JobError, match="already exists: name another folder"):
        claim("--counts", place, "r1")
    assert file.exists()
