"""Helpers for the tests of the jobs: they run a job, read its output, apply its messages."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import count, split
from tests.spark.acker import Acker as Acker  # noqa: PLC0414
from tests.support.plain_words import counted
from tests.support.queue_server import requests_in
from xorack.aws.dynamodb_store import DynamoDBStore

ROOT = Path(__file__).resolve().parents[2]
_TEXT = (
    "the quick, brown Fox—jumps über STRASSE straße ΣΊΣΥΦΟΣ 日本語の文章 naïve don't x1 \U0001f600 "
)
_TOKENS = _TEXT.split(" ")


def write_files(root, contents):
    """Write files of text or bytes below a folder; return the folder."""
    for name, content in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def block_with(blocks: list[str], text: str) -> str:
    """Return the only block that contains a text."""
    (block,) = (block for block in blocks if text in block)
    return block


def run_process(command, *, cwd=ROOT, env=None, status=0):
    """Run a command to its end; return its output after a check of its exit status."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout[-6000:] + done.stderr[-6000:]
    return done


def prose(rng: random.Random, length: int) -> str:
    endings = ("", "", "\n", "\t", ".")
    return " ".join(rng.choice(_TOKENS) + rng.choice(endings) for _ in range(length))


def count_words(texts: Iterable[str]) -> Counter:
    return sum(map(counted, texts), Counter())


def run_main(job, queue, run, records, *options):
    common = ("--queue-url", queue.queue_url, "--run-id", run, "--records", records, "--json")
    return job.main([*map(str, common), *map(str, options)])


def run_split(queue, database, out, *more, run="r1"):
    folders = ("--database", database, "--words", out)
    return run_main(split, queue, run, out.parent / "records", *folders, *more)


def run_count(queue, source, out, *more, run="r1"):
    folders = ("--words", source, "--counts", out)
    return run_main(count, queue, run, source.parent / "records", *folders, *more)


def last_summary(capfd):
    return json.loads(capfd.readouterr().out.splitlines()[-1])


def counts_in(spark, folder) -> Counter:
    rows = spark.read.parquet(str(folder)).collect()
    return Counter({row["word"]: row["count"] for row in rows})


def delete_rows(folder, unwanted) -> list[dict]:
    """Rewrite the Parquet files of a folder without some rows; return these."""
    deleted = []
    for part in folder.glob("*.parquet"):
        schema, rows = pq.read_schema(part), pq.read_table(part).to_pylist()
        kept = [row for row in rows if not unwanted(row)]
        deleted += [row for row in rows if unwanted(row)]
        part.unlink()  # Spark keeps a checksum of each file
        table = pa.Table.from_pylist(kept, schema)
        pq.write_table(table, part.with_name(f"rewritten-{part.name}"))
    return deleted


def chains_in(aws) -> dict:
    store = DynamoDBStore(aws.table_name, client=aws.client("dynamodb"))
    return {chain.tag: chain for chain in store.scan()}


def totals(chains) -> dict:
    """Return the status and the numbers of started and finished units, by tag."""
    return {
        tag: (chain.status, chain.counts.started, chain.counts.finished)
        for tag, chain in chains.items()
    }


def apply(functions, bodies):
    """Handle three messages at a time, last first: SQS keeps no order."""
    backwards = bodies[::-1]
    for begin in range(0, len(backwards), 3):
        assert functions.consume(*backwards[begin : begin + 3]) == []


def duplicates_in(bodies):
    """Count repeated requests; requests of one id must be equal."""
    requests = requests_in(bodies)
    distinct = {(r.tag, r.id): r for r in requests}
    assert all(distinct[r.tag, r.id] == r for r in requests)
    return len(requests) - len(distinct)
