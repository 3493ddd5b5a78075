"""A user's jobs in batch, from the start of the rows to the acks of their chains."""

from __future__ import annotations

import json
import operator
import shutil
from datetime import date, datetime, timezone
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as F

from tests.spark.acker import Acker
from tests.spark.conftest import EACH_SESSION
from tests.spark.orders import LINES, SIZES, UNITS, as_set, lines_of, part_files, requests_in, tag
from xorack import plain, unit_id, xor
from xorack.aws.sqs import message_group_id
from xorack.core.chain import Parent
from xorack.core.request import Request
from xorack.errors import ArgumentError, ColumnsError, OutputDiffersError, SendError, StateError
from xorack.spark import Observed, Report, Tracking, folding, starting
from xorack.spark.record import Record
from xorack.spark.storage import Stored, _text

ALL, ORDERS = len(LINES), len(SIZES)


def stamps(op, id, counter):
    """Return the requests that stamp all lines of each order, made in plain Python."""
    requests = {}
    for order, size in enumerate(SIZES, 1):
        ids = [unit_id("2026-01-31/lines", order, line) for line in range(1, size + 1)]
        stamp, fields = xor(*map(plain, ids), bytes(8)), {counter: size}
        if op == "create":  # the chain is a unit of the run's chain
            signed = [int.from_bytes(plain(id), "little", signed=True) for id in ids]
            sums = reduce(operator.xor, signed), size, sum(id >> 32 for id in signed)
            fields["parents"] = [Parent(unit_id(tag(order), *sums), ("2026-01-31",), 0)]
        requests[tag(order), id] = Request(op, tag(order), id, stamp, **fields)
    return requests


@EACH_SESSION
@pytest.mark.each_version
def test_a_stored_proof(run):
    """Requests are those of plain Python; repeated, they are the same; another run has others."""
    lines = run.rows
    path = run.write_lines()
    report = lines.start(path)
    started = run.sent()
    sent = len(started), ORDERS + 2, sum(map(len, started))  # two to the run's chain
    assert report == Report("written", ORDERS, ALL, 0, *sent)
    assert as_set(started) == stamps("create", "lines/start", "started")

    billed = run.write(run.bill(run.read()), "billed")
    report = lines.finish(billed)
    finished = run.sent()
    size = sum(path.stat().st_size for path in part_files(billed))
    times = sorted(path.stat().st_mtime for path in part_files(billed))
    ends = [datetime.fromtimestamp(int(one), timezone.utc) for one in (times[0], times[-1])]
    read = (Stored(f"file:{billed}", len(part_files(billed)), size, *ends),)
    sent = len(finished), ORDERS + 2, sum(map(len, finished))
    assert report == Report("written", ORDERS, ALL, 0, *sent, read)
    assert as_set(finished) == stamps("stamp", "lines/finish", "finished")
    acker = Acker(started)
    assert acker.statuses() == {"open": ORDERS}
    acker.apply(finished)
    assert acker.statuses() == {"acked": ORDERS}

    lines.start(path)
    assert as_set(run.sent()) == as_set(started)
    # The input may be gone once its output is proved; the record is kept apart.
    shutil.rmtree(path)
    lines.finish(billed)
    assert as_set(run.sent()) == as_set(finished)
    acker.apply(started + finished)
    assert acker.statuses() == {"acked": ORDERS}


def test_runs(run):
    path = run.write_lines()
    run.rows.start(path)
    today = as_set(run.sent())
    tomorrow = run.again(run_id="2026-02-01")
    with pytest.raises(StateError, match=r"^run '2026-02-01' has not started rows named 'lines'$"):
        tomorrow.rows.finish(path)
    tomorrow.rows.start(path)
    assert {t for t, _ in as_set(run.sent())} == {tag(n, "2026-02-01") for n in range(1, 7)}
    run.write_lines(LINES[1:])
    expected = r"^run '2026-01-31' started 154 rows named 'lines' in 6 chains before, and now .*: "
    with pytest.raises(StateError, match=rf"{expected}153 in 5 chains; use another run_id$"):
        run.rows.start(path)
    turned = run.tracking.rows("lines", chain="order", unit=["line", "order"])
    with pytest.raises(StateError, match="unit columns order, line, and now they are line, order"):
        turned.finish(path)
    other = run.tracking.rows("others", chain="order", unit=["order", "line"])
    with pytest.raises(StateError, match="rows named 'lines' have started chains 2026-01-31/order"):
        other.start(path)
    assert run.queue.bodies == []
    assert len(today) == ORDERS


def test_a_start_that_failed_claims_nothing(run):
    """It can be repeated with other columns, rows and names: nothing was kept."""
    path = run.write_lines()
    with pytest.raises(ColumnsError, match="column nr is not in the frame"):
        run.tracking.rows("typo", chain="order", unit="nr").start(path)
    with pytest.raises(ColumnsError, match=r"^column xorack_unit_: xorack needs this name"):
        run.rows.start(run.read().withColumn("xorack_unit_", F.lit(1)))
    by_order = run.tracking.rows("lines", chain="order", unit="sku")
    expected = (
        r"^the units of chain '2026-01-31/order/\d' cancel each other out: add a unit column "
    )
    with pytest.raises(ColumnsError, match=expected):
        by_order.start(run.read().unionAll(run.read()))
    assert run.queue.bodies == []
    with pytest.raises(StateError):
        by_order.finish(path)
    assert run.rows.start(path).requests == ORDERS + 2


DAMAGES = {
    "a part of the chains": lambda summary, parts: parts[0].unlink(),
    "half a file": lambda summary, parts: parts[0].write_bytes(parts[0].read_bytes()[:99]),
    "half a line": lambda summary, parts: summary.write_text(summary.read_text()[:99]),
}


@pytest.mark.parametrize(
    "damage", [pytest.param(d, marks=[pytest.mark.slow] * (d != "half a file")) for d in DAMAGES]
)
def test_a_damaged_record_is_recreated(run, damage):
    path = run.write_lines()
    run.rows.start(path)
    acker = Acker(run.sent())
    billed = run.write(run.bill(run.read()), "billed")
    (summary,) = Path(run.root).glob("records/*/*/*/summary/part-*")
    (chains,) = Path(run.root).glob("records/*/*/*/*/chains")
    kept = run.write(run.spark.read.parquet(str(chains)).repartition(2), "kept")
    shutil.rmtree(chains)
    shutil.copytree(kept, chains)
    for checksum in chains.parents[1].rglob(".*.crc"):
        checksum.unlink()
    DAMAGES[damage](summary, part_files(chains))
    _text.cache_clear()
    problem = "has not started rows" if "line" in damage else "is corrupt: call start again"
    problem += r".* \(.*part-" * (damage == "half a file")
    with pytest.raises(StateError, match=problem):
        run.rows.finish(billed)
    acker.apply(run.sent())
    assert acker.statuses().keys() & {"open"}
    assert run.rows.start(path).requests == ORDERS + 2
    run.rows.finish(billed)
    acker.apply(run.sent())
    assert acker.statuses() == {"acked": ORDERS}


@pytest.mark.slow
def test_two_starts_at_once(run, monkeypatch):
    """Each attempt keeps its own record: whichever ends last, the rows can be finished."""
    path, write_header = run.write_lines(), Record.write_header

    def late(record, header, **given):
        monkeypatch.undo()
        run.rows.start(path)
        write_header(record, header, **given)

    monkeypatch.setattr(Record, "write_header", late)
    run.rows.start(path)
    acker = Acker(run.sent())
    run.rows.finish(run.write(run.bill(run.read()), "billed"))
    acker.apply(run.sent())
    assert acker.statuses() == {"acked": ORDERS}
    assert run.rows.start(path).units == ALL


def test_a_queue_that_does_not_accept_all(run):
    path = run.write_lines()
    other = Tracking(run.spark, run.queue.queue_url + "x", "r", str(run.root))
    with pytest.raises(SendError, match="QueueDoesNotExist"):
        other.rows("lines", chain="order", unit=["order", "line"]).start(path)
    run.queue.refuse = lambda count: True
    with pytest.raises(SendError):
        run.rows.start(path)
    run.queue.refuse = lambda count: False
    run.rows.start(path)
    # A task of the job that failed may still send: the same requests, which count once.
    sent = {(request.tag, request.id) for request in requests_in(run.sent())}
    assert sent == {(tag(n), "lines/start") for n in range(1, 7)}


def noted(acker):
    """Return the lines that notes name, and how many each note says are missing, by order."""
    found = {t: json.loads(chain.note) for t, chain in acker.chains.items() if chain.note}
    ids = {UNITS[int(id, 16)] for note in found.values() for id in note["missing"]}
    return ids, {t: note["missing_count"] for t, note in found.items()}


@EACH_SESSION
def test_rows_missing_in_the_input(run):
    """Complete chains finish; notes count what is missing, and name what is missing alone."""
    path = run.write_lines()
    run.rows.start(path)
    acker = Acker(run.sent())
    # Of order 1 all lines, of order 4 one, of order 6 three.
    lost = {(1, 1), (4, 9), (6, 1), (6, 60), (6, 120)}
    first, *_ = part_files(path)
    run.write_lines([keys for keys in LINES if keys not in lost])
    first.touch()  # a file that was emptied
    billed = run.write(run.bill(run.read()), "billed")
    gone = (
        r"input lost 5 rows that were started: 3 of 3 files are missing or empty since then: "
        r"\S+/lines/part-"
    )
    with pytest.raises(OutputDiffersError, match=gone):
        run.rows.finish(billed)
    acker.apply(run.sent())
    assert noted(acker) == ({(1, 1), (4, 9)}, {tag(1): 1, tag(4): 1, tag(6): 3})
    assert acker.statuses() == {"acked": 3, "open": 3}
    found = run.rows.audit(path).missing_rows(lines_of(run.spark))  # a copy of the input
    assert {(row["order"], row["line"]) for row in found.rows.collect()} == lost


@EACH_SESSION
@pytest.mark.each_version
def test_an_observed_proof(run, monkeypatch):
    """The write is run, once, and nothing else is."""
    lines, out = run.rows, str(run.root / "billed")
    lines.start(run.write_lines())
    acker = Acker(run.sent())
    bills = run.bill(run.read())

    def swallowed(some):  # Spark observes a write that fails, too
        with pytest.raises(Exception, match=r"PATH_ALREADY_EXISTS|already exists"):
            some.write.json(str(run.root))
        some.write.json(f"{out}3")

    lost = lines.observe(
        bills.where("sku > 'sku 0'"), lambda some: some.write.format("noop").mode("append").save()
    )
    with pytest.raises(OutputDiffersError, match=r"^at most 123 of 154 units of 'lines' are in"):
        lines.finish(observed=lost)
    assert {request.op for request in requests_in(run.sent())} == {"note"}
    for wrong, problem in [
        (lambda some: None, "it did not write its frame"),
        (lambda some: some.where("sku > 'sku 0'"), r"\.where is not a write method"),
        (lambda some: some.count(), r"\.count is not a write method"),
        (
            lambda some: [some.write.json(f"{out}{n}") for n in range(2)],
            "the frame was written before",
        ),
        (swallowed, r"call observe\(\) again"),
    ]:
        with pytest.raises(ArgumentError, match=f"^write: .*{problem}"):
            lines.observe(bills, wrong)
    with pytest.raises(ZeroDivisionError):
        lines.observe(bills, lambda some: (some.write.json(f"{out}2"), 1 / 0))
    with monkeypatch.context() as patch:
        patch.setattr(folding, "_PATIENCE_SECONDS", 0.1)
        with pytest.raises(ArgumentError, match="observed: the observed frame was not written"):
            lines.finish(observed=Observed(bills, Observation(), bills))
    assert run.queue.bodies == []
    observed = lines.observe(bills, lambda some: some.write.json(out))
    assert observed.frame.columns == ["sku", "amount"]
    assert lines.finish(observed=observed).proof == "observed"
    acker.apply(run.sent())
    assert acker.statuses() == {"acked": ORDERS}


def test_a_job_in_between_that_loses_rows_sends_nothing(run):
    lines = run.rows
    invoices = run.tracking.rows("invoices", chain="order", unit=["order", "line"])
    lines.start(run.write_lines())
    run.write(run.read().where("line > 1"), "kept")
    few, all_rows = (
        run.write(run.bill(run.read(name), "order", "line"), f"{name} billed")
        for name in ("kept", "lines")
    )
    run.sent()
    nothing = "148 of 154 units of 'lines' are in the output: nothing was sent for any chain\n"
    with pytest.raises(OutputDiffersError, match=f"{nothing}the job's input lost 6 rows that were"):
        lines.advance(invoices, few, source=run.read("kept"))
    assert run.sent() == []
    lines.advance(invoices, all_rows)
    run.sent()
    with pytest.raises(OutputDiffersError, match=nothing):  # no chain is acked
        lines.advance(invoices, few)
    assert run.sent() == []


def test_a_job_in_between(run):
    """Invoices have the keys of their lines; both are in the chains of the orders."""
    lines, tracking = run.rows, run.tracking
    invoices = tracking.rows("invoices", chain="order", unit=["order", "line"])
    path = run.write_lines()
    lines.start(path)
    acker = Acker(run.sent())
    all_rows = run.write(run.bill(run.read(), "order", "line"), "invoices")
    other = tracking.rows("invoices", chain="order", unit=["order", "line"], label="invoice")
    with pytest.raises(ArgumentError, match="label 'invoice', expected 'order'"):
        lines.advance(other, all_rows)
    with pytest.raises(ArgumentError, match="the frame reads the rows that were started"):
        lines.advance(invoices, path)
    with pytest.raises(StateError):
        invoices.finish(all_rows)
    report = lines.advance(invoices, all_rows)
    assert (report.chains, report.units, report.missing) == (ORDERS, ALL, 0)
    advanced = run.sent()
    lines.advance(invoices, all_rows)
    assert as_set(run.sent()) == as_set(advanced)
    with pytest.raises(ArgumentError, match=r"^following: TrackedRows.*, expected rows of another"):
        lines.advance(lines, all_rows)
    second = tracking.rows("copies", chain="order", unit=["order", "line"])
    for again in (lambda: lines.finish(all_rows), lambda: lines.advance(second, all_rows)):
        with pytest.raises(StateError, match=r"^rows named 'invoices' follow 'lines' in this run"):
            again()
    for number in range(1, 7):
        (request,) = (r for r in requests_in(advanced) if r.tag == tag(number))
        assert (request.started, request.finished) == (SIZES[number - 1],) * 2
    acker.apply(advanced)
    assert acker.statuses() == {"open": ORDERS}
    mailed = run.write(run.bill(run.spark.read.parquet(all_rows), "order", rows=invoices), "mailed")
    invoices.finish(mailed)
    acker.apply(run.sent())
    assert acker.statuses() == {"acked": ORDERS}


def test_facts_about_chains(run):
    """Chains without rows are acked, failed ones fail, with or without rows."""
    run.write_lines()
    chains = run.spark.createDataFrame(
        [
            (1, '{"a": [1, "é\\u0000"], "a": 2}', None),
            (2, None, "unreadable \0: é" + "x" * 300),
            (7, '{"empty": true}', None),
            (8, None, ""),
        ],
        "order long, detail string, failed string",
    )
    report = run.rows.start(str(run.root / "lines"), chains)
    assert (report.chains, report.units) == (ORDERS - 1, ALL - 2)
    started = run.sent()
    acker = Acker(started)
    statuses = {t: chain.status for t, chain in acker.chains.items()}
    assert statuses == {
        **{tag(n): "open" for n in (1, 3, 4, 5, 6)},
        **{tag(2): "failed", tag(7): "acked", tag(8): "failed"},
    }
    details = {event["tag"]: event.get("detail") for event in acker.bus.events}
    assert details[tag(7)] == {"empty": True}
    reasons = {event["tag"]: event.get("reason") for event in acker.bus.events}
    assert reasons[tag(2)] == "unreadable : é" + "x" * 236
    # The rows of the failed chain are left out: that is no loss.
    run.rows.finish(run.write(run.bill(run.read().where("order <> 2")), "billed"))
    acker.apply(run.sent())
    assert acker.statuses() == {"acked": 6, "failed": 2}
    event = next(event for event in acker.bus.events if event["tag"] == tag(1))
    assert event["detail"] == {"a": 2}
    run.rows.start(str(run.root / "lines"), chains)
    assert as_set(run.sent()) == as_set(started)


@pytest.mark.parametrize(
    ("detail", "problem"),
    [
        ("{", "Expecting property name"),
        ("[1]", "a JSON object of at most 4096 bytes"),
        ('{"a": "\\ud800"}', "without lone surrogates"),
        ('{"a": "' + "x" * 4090 + '"}', "4098 bytes"),
        ('{"a": ' * 65 + "1" + "}" * 65, "64 deep"),
    ],
)
def test_detail_that_is_invalid(detail, problem):
    with pytest.raises(ColumnsError, match=r"^detail of chain r/order/9: ") as caught:
        starting.check_detail("r/order/9", detail)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_facts_that_name_a_chain_twice(run):
    chains = run.spark.createDataFrame([(5, None), (5, "late")], "order int, failed string")
    with pytest.raises(ColumnsError, match=f"2 rows about chain {tag(5)}$"):
        run.rows.start(lines_of(run.spark), chains)
    assert run.queue.bodies == []
    # A chain column of that name is no fact.
    run.write_lines()
    failed = run.read().withColumnRenamed("order", "failed").withColumn("detail", F.col("line"))
    rows = run.tracking.rows("failed", chain=["failed", "detail"], unit=["failed", "detail"])
    rows.start(failed, failed.select("failed", "detail"))
    assert {r.op for r in requests_in(run.sent())} == {"create"}


@pytest.mark.slow
def test_odd_names(run):
    """Runs, labels and values of any characters; records stay inside their folder."""
    odd = run.again(run_id="../.. 50%=é*{}" + "ü" * 60, root=run.root / "[x] {a}*?")
    label = "../x/%é?" + "y" * 300
    with pytest.raises(ArgumentError, match="run_id"):
        _ = odd.tracking
    odd.run_id = odd.run_id.replace("/", "")
    values = ["a/b", "50%", "..", 'qu"ote\n\x01', "日本" * 400, ""]
    frame = run.spark.createDataFrame(
        [(value, date(2026, 1, n + 1), n) for n, value in enumerate(values)],
        "a string, b date, n int",
    )
    rows = odd.tracking.rows("-", chain=["a", "b"], unit="n", label=label)
    rows.start(frame)
    acker = Acker(run.sent())
    prefix = f"{odd.run_id}/../x%2F%25é?{'y' * 300}/".replace("../x", "..%2Fx")
    assert acker.chains.keys() >= {f"{prefix}a%2Fb/2026-01-01", f"{prefix}50%25/2026-01-02"}
    assert len(acker.chains) == len(values)
    rows.finish(frame)
    acker.apply(run.sent())
    assert acker.statuses() == {"acked": len(values)}
    assert run.queue.groups == {message_group_id(odd.run_id)}
    assert [path.name for path in odd.root.iterdir()] == ["records"]
    assert max(len(path.name) for path in run.root.rglob("*")) <= 255


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"run_id": "\ud800"}, "tag"),
        ({"run_id": " "}, "run_id"),
        ({"records": ""}, "records"),
        ({"queue_url": "stamps"}, "queue_url"),
        ({"timeout": 0}, "timeout"),
        ({"name": "a b"}, "name"),
        ({"chain": []}, "chain"),
        ({"chain": 5}, "chain"),
        ({"unit": ["a", "a"]}, "unit"),
        ({"unit": None}, "unit"),
        ({"label": ""}, "label"),
    ],
)
def test_options_and_names_that_are_invalid(spark, change, problem):
    options = {"queue_url": "http://q/1/stamps", "run_id": "r", "records": "/r"}
    names = {"name": "n", "chain": "c", "unit": "u"}
    for option, value in change.items():
        (options if option in options or option == "timeout" else names)[option] = value
    with pytest.raises(ValueError, match=f"^(option )?{problem}: ") as caught:
        Tracking(spark, **options).rows(names.pop("name"), **names)
    assert "\n" not in str(caught.value)


def calls_of_wrong_types(lines, frame, path):
    """Return calls with arguments of another type, and what their errors begin with."""
    doubled = frame.transform(lines.with_unit)
    doubled = doubled.alias("a").join(doubled.alias("b"), "order")
    return [
        (lambda: lines.finish(observed=frame), "observed: Data.*, expected the result of observe"),
        (lambda: lines.start(path, chains=path), "chains: '/.*, expected a frame"),
        (lambda: lines.with_unit(path), "frame: '/.*, expected a frame"),
        (lambda: lines.observe(path, print), "frame: '/.*, expected a frame"),
        (lambda: lines.evidence(path), "frame: '/.*, expected a frame"),
        (lambda: lines.evidence(doubled), "column xorack_lines is 2 times in the frame"),
        (lambda: lines.advance("x", path), "following: 'x', expected rows of another name"),
        (lambda: lines.batch(0).audit(path), "batch_id: 0, expected None, because only finish"),
    ]


def test_outputs_that_are_invalid(run):
    lines = run.rows
    lines.start(run.write_lines())
    run.sent()
    frame = run.read()
    stream = run.spark.readStream.schema(frame.schema).parquet(str(run.root / "lines"))
    for given, problem in [
        ((stream,), "the frame is a stream, expected the frame of a micro-batch"),
        ((), "no output given, expected one of written, observed, read"),
        (([],), "an empty list"),
        ((Path("/x"),), r"PosixPath\('/x'\), expected a frame, path or table's name"),
        (("no_such_table",), "'no_such_table' cannot be read: "),
    ]:
        with pytest.raises(ArgumentError, match=f"^written: {problem}"):
            lines.finish(*given)
    with pytest.raises(ArgumentError, match="written and read given"):
        lines.finish(frame, read=frame)
    with pytest.raises(ArgumentError, match=r"^written: '/no/such' cannot be read: "):
        lines.finish("/no/such")
    frames = run.again(run_id="frames")
    frames.rows.start(frame)
    run.sent()
    few = frames.write(frames.bill(frame.where("line > 1")), "few")
    with pytest.raises(OutputDiffersError, match=r"148 of 154 .*\n.*no source= says what this job"):
        frames.rows.finish(few)
    run.sent()
    with pytest.raises(ColumnsError, match="neither the evidence of 'lines'"):
        lines.finish(run.write(frame.select("sku"), "skus"))
    with pytest.raises(ArgumentError, match="batch_id: -1"):
        lines.batch(-1)
    for call, text in calls_of_wrong_types(lines, frame, str(run.root / "lines")):
        with pytest.raises((ArgumentError, ColumnsError), match=f"^{text}"):
            call()
    assert run.queue.bodies == []
