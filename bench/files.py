"""CPU of `xorack diff` on files, beside DuckDB's plain full outer join: ``python -m bench.files``.

Each way runs in a process of its own, on two copies of TPC-H's lineitem as Parquet.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.meter import make_lines
from xorack.compare.engine import diff_files
from xorack.compare.inputs import ReadOptions
from xorack.compare.options import CompareOptions, connect

KEY = ["l_orderkey", "l_linenumber"]
CASES = {"equal": 0.0, "10 rows": 10 / 6e6, "1,000 rows": 1000 / 6e6, "10 %": 0.1, "all rows": 1.0}
"""The share of rows that differ."""


def damage(left: str, right: str, share: float) -> None:
    """Drop a quarter of a share of the rows, give a quarter another key, change half."""
    drawn = f"(hash({', '.join(KEY)}, 'bench') & 4294967295) < {int(share * 2**32)}"
    kind = f"(hash({', '.join(KEY)}, 'kind') & 3)"
    changes = {
        "l_orderkey": (1, "l_orderkey + 1000000000"),
        "l_quantity": (2, "(l_quantity + 1)::DECIMAL(15,2)"),
        "l_comment": (3, "l_comment || '.'"),
    }
    columns = ", ".join(
        f"CASE WHEN {drawn} AND {kind} = {number} THEN {value} ELSE {name} END AS {name}"
        for name, (number, value) in changes.items()
    )
    rows = f"SELECT * REPLACE ({columns}) FROM '{left}' WHERE NOT ({drawn} AND {kind} = 0)"  # noqa: S608
    with connect() as con:
        con.execute("SET preserve_insertion_order = true")
        con.execute(f"COPY ({rows}) TO '{right}' (FORMAT parquet)")


def join(left: str, right: str) -> None:
    """Join both sides on the key, and count the differences of each column."""
    with connect() as con:
        names = [row[0] for row in con.execute(f"DESCRIBE FROM '{left}'").fetchall()]
        same = " AND ".join(f"l.{name} IS NOT DISTINCT FROM r.{name}" for name in KEY)
        counts = ", ".join(
            f"count(*) FILTER (l.{name} IS DISTINCT FROM r.{name})" for name in names
        )
        con.execute(f"SELECT {counts} FROM '{left}' l FULL JOIN '{right}' r ON {same}").fetchall()  # noqa: S608


def compare(left: str, right: str) -> None:
    """Compare as the command does, with the first rows, why they differ, and how far."""
    with connect() as con:
        found = diff_files(con, [left, right], [ReadOptions()] * 2, CompareOptions(KEY))
        found.first(), found.explain(), found.changes()


WAYS = {"join": join, "diff": compare}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the CPU seconds of both ways and their ratio; or run one way and print its CPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 6 million rows")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.run:
        WAYS[options.run[0]](*options.run[1:])
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_utime + used.ru_stime)
        return
    with tempfile.TemporaryDirectory(prefix="xorack-bench-") as folder:
        make_lines(Path(folder, "lines"), options.scale)
        left, right = f"{folder}/lines/lineitem/*.parquet", f"{folder}/right.parquet"
        for name, share in CASES.items():
            damage(left, right, share)
            command = [sys.executable, "-m", "bench.files", "--run"]
            took = {
                way: float(subprocess.check_output([*command, way, left, right])) for way in WAYS
            }
            ratio = took["diff"] / took["join"]
            print(f"{name}: join {took['join']:.2f} s, diff {took['diff']:.2f} s, {ratio:.2f}")


if __name__ == "__main__":
    main()
