"""The machine's processes, also where there is no `ps`."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process that has not ended; `group` is its process group."""

    id: int
    parent: int
    group: int


def processes() -> Iterator[Process]:
    """Yield all processes, without those that have ended and wait to be noticed."""
    if Path("/proc/self/stat").exists():
        lines = _of_proc()
    else:
        command = ["ps", "-A", "-o", "pid=,stat=,ppid=,pgid="]
        lines = iter(subprocess.check_output(command, text=True).splitlines())
    for line in lines:
        id, state, parent, group = line.split()[:4]
        if not state.startswith("Z"):
            yield Process(int(id), int(parent), int(group))


def _of_proc() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        yield f"{path.parent.name} {text.rpartition(')')[2]}"  # its name may hold anything


def members(group: int) -> list[int]:
    """Return the ids of the running processes of a group."""
    return [process.id for process in processes() if process.group == group]
