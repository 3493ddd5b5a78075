"""The processes of the machine, for machines without `ps` too."""

import subprocess
from collections.abc import Iterator
from pathlib import Path


def members(group: int) -> list[int]:
    """Return the ids of the processes of a group that have not ended."""
    if Path("/proc/self/stat").exists():
        lines = _of_proc()
    else:
        command = ["ps", "-A", "-o", "pid=,stat=,ppid=,pgid="]
        lines = iter(subprocess.check_output(command, text=True).splitlines())
    found = (line.split()[:4] for line in lines)
    # A process in the state Z has ended, and waits to be noticed.
    return [int(id) for id, state, _, of in found if int(of) == group and state[0] != "Z"]


def _of_proc() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(errors="replace")
        except OSError:  # it ended after the folder was listed
            continue
        yield f"{path.parent.name} {text.rpartition(')')[2]}"  # its name may hold anything
