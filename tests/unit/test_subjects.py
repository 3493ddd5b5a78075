"""The check of commits' subjects."""

import subprocess

import pytest

from tools.subjects import new_subjects, problem_of


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("Let only xorack write a chain that it has adopted", None),
        ("Process what is left at the deadline", None),
        ("Need no JVM for `xorack.spark.errors`: it imports only the core", None),
        ("Adds a test", "begins with 'Adds'"),
        ("Added a test", "begins with 'Added'"),
        ("Adding a test", "begins with 'Adding'"),
        ("The end of a window", "begins with 'The'"),
        ("Windows: an end that is too early", "begins with a topic"),
        ("fix(aws): a retry", "begins with a topic"),
        ("add a test", "does not begin with a capital"),
        ("Add a test.", "ends with a full stop"),
        ("Wip", "is one word"),
        ("Add " + 69 * "x", "has 73 columns"),
    ],
)
def test_a_subject_is_a_command(subject, problem):
    found = problem_of(subject)
    assert found is None if problem is None else problem in (found or "")


def test_only_commits_after_the_base_are_checked(tmp_path):
    def git(*arguments):
        return subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *arguments],
            cwd=tmp_path,
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()

    assert new_subjects(tmp_path, "0" * 40) == []  # an archive without a repository
    git("init", "--quiet")
    for subject in ("an old one.", "Add a test", "an added one"):
        git("commit", "--quiet", "--allow-empty", "--message", subject)
    old = git("rev-parse", "HEAD~2")
    subjects = [subject for _, subject in new_subjects(tmp_path, old)]
    assert subjects == ["an added one", "Add a test"]
    assert new_subjects(tmp_path, "0" * 40) == []  # a shallow clone does not have the base
