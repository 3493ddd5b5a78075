"""The demo's part that loses words and has them repaired, on its own."""

import io
import json

import pytest
from rich.console import Console

from demo.display import _print_lost
from demo.errors import DemoFailed
from demo.losing import Lost, Repair, hurt_chains, write_events
from demo.watching import Ended
from pipeline.missing import read_events
from tests.unit.test_demo import printed, result
from xorack.cli.commands import run

ID, OTHER = "00000000000000aa", "00000000000000bb"


def ended(*outstanding, tag="db/a"):
    event = {
        "source": "xorack",
        "detail-type": "failed",
        "detail": {"tag": tag, "status": "failed", "outstanding": list(outstanding)},
    }
    return Ended(tag, "failed", "timed out", 9, 8, outstanding, json.dumps(event, indent=1))


def summary(*ids, missing=None):
    return {
        "missing": len(ids) if missing is None else missing,
        "named": [
            {"tag": "db/a~2", "id": one, "path": "/db/a", "position": 1234, "word": "w"}
            for one in ids
        ],
        "repaired": [{"tag": "db/a~2", "repairs": "db/a"}],
    }


def test_what_the_repair_found_is_what_the_events_named():
    done = Repair.of(summary(ID, OTHER), [ended(ID), ended(OTHER, tag="db/b")])
    assert done == Repair(
        {"db/a": "db/a~2"}, 2, tuple(Lost(one, "/db/a", 1234, "w") for one in (ID, OTHER))
    )
    with pytest.raises(DemoFailed, match=OTHER):
        Repair.of(summary(ID), [ended(ID, OTHER)])
    # Of very many words the summary tells the first ones only.
    assert Repair.of(summary(ID, missing=5000), [ended(OTHER)]).missing == 5000


def test_events_are_written_as_the_repair_reads_them(tmp_path):
    write_events(tmp_path / "e", [ended(ID), ended(OTHER, tag="db/\nb")])
    failed = read_events((tmp_path / "e").read_text().splitlines(), "e")
    assert [(one.tag, one.outstanding) for one in failed] == [("db/a", {0xAA}), ("db/\nb", {0xBB})]


def test_hurt_chains_are_those_of_which_less_was_counted_than_found(tmp_path):
    files = [("db/a", 3, None), ("db/b", 2, None), ("db/c", 1, None), ("db/d", 0, None)]
    files.append(("db/bad", 0, "cannot be read"))
    (tmp_path / "w" / "files").mkdir(parents=True)
    (tmp_path / "c" / "_tracking").mkdir(parents=True)
    rows = [dict(zip(("tag", "words", "error"), file, strict=True)) for file in files]
    given = [{name: value for name, value in row.items() if value is not None} for row in rows]
    (tmp_path / "w" / "files" / "part-0.json").write_text("\n".join(map(json.dumps, given)))
    counted = ({"tag": "db/a", "finished": 3}, {"tag": "db/b", "finished": 1})
    for at, one in enumerate(counted):  # a line each, as Spark's tasks may write them
        part = tmp_path / "c" / "_tracking" / f"part-{at}.json"
        part.write_text(json.dumps(one) + "\n")
    assert hurt_chains(tmp_path / "w", tmp_path / "c") == ["db/b", "db/c"]


def test_the_table_tells_of_the_repair():
    lost = Lost(ID, "/db/a.txt", 1234, "wo\nrd")
    repaired = result(repair=Repair({"a": "a~2", "b": "b~2"}, 3, (lost,)))
    lines = printed(repaired)
    assert "chains acked        3 of 3, 2 by their repair" in lines
    at = lines.index("lost, named by the failed chains' events, counted by the repair")
    assert lines[at + 1 : at + 3] == [
        f"  {ID}  /db/a.txt, position 1,234: wo\\nrd",
        "  and 2 more",
    ]
    assert repaired.ok


def test_long_lists_of_lost_words_are_cut():
    many = tuple(Lost(ID, "/db/a", at, "w") for at in range(30))
    out = Console(file=io.StringIO(), soft_wrap=True)
    _print_lost(out, Repair({}, 30, many))
    lines = out.file.getvalue().splitlines()
    assert len(lines) == 1 + 1 + 20 + 1
    assert lines[-1] == "  and 10 more"


def test_words_that_are_not_counted_in_the_end_are_no_success():
    wrong = result(uncounted=3)
    assert not wrong.ok
    assert "words               12,345 (678 different): 3 too few" in printed(wrong)


@pytest.mark.parametrize("lose", ["", "-1", "some", "1.5", "99999999"])
def test_what_is_no_number_of_words(lose, capsys):
    assert run(["demo", "--lose", lose]) == 2
    assert "--lose" in capsys.readouterr().err
