"""The requests of chains, which are columns of a frame, become the JSON of messages."""

from __future__ import annotations

import json

from xorack.core.request import Request
from xorack.core.stamp import plain
from xorack.spark.sending import request_texts

PARENTS = '[{"unit":"000000000000002a","tags":["run"],"kind":"plain"}]'
COLUMNS = {
    "op": ["create", "stamp"],
    "tag": ['run/"\uffff/é', "run/{}"],
    "id": ["lines/start", "lines/start/end"],
    "xor": [-2, 7],
    "started": [3, None],
    "finished": [None, 1],
    "timeout": [60.0, None],
    "idle_timeout": [None, None],
    "detail": ['{"bytes": 5}', None],
    "parents": [PARENTS, None],
}


def test_columns_become_the_requests_that_python_makes():
    texts = [*request_texts([*COLUMNS], [*COLUMNS.values()])]

    assert all(text.isascii() for text in texts)
    create, stamp = (Request.from_json(json.loads(text)) for text in texts)
    of_chain = {"timeout": 60.0, "detail": {"bytes": 5}, "parents": json.loads(PARENTS)}
    tag, unit = COLUMNS["tag"][0], (1 << 64) - 2
    assert create == Request("create", tag, "lines/start", plain(unit), started=3, **of_chain)
    assert stamp == Request("stamp", "run/{}", "lines/start/end", plain(7), finished=1)
    assert "null" not in "".join(texts)
