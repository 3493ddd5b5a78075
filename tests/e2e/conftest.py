"""An embedded AWS and the synthesised stack in it, shared by the tests of this folder."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pytest

import xorack
from xorack.core.request import Request


def chain(tag, children, *, lose=(), **options):
    """The requests of a chain: a root with children, of which all but the lost are finished."""
    root = xorack.unit_id(tag)
    units = [xorack.unit_id(tag, n) for n in range(children)]
    yield Request.create(tag, "create", xorack.traced(root), **options)
    split = reduce(xorack.xor, map(xorack.traced, [root, *units]))
    yield Request.stamp_(tag, "split", split, started=children, finished=1)
    for n, unit in enumerate(units):
        if n not in lose:
            yield Request.stamp_(tag, f"done {n}", xorack.traced(unit), finished=1)


@pytest.fixture(scope="session")
def embedded_aws(_no_real_aws):
    """A running embedded AWS; tests deploy stacks under names of their own."""
    from xorack.local.embedded import EmbeddedAWS

    with EmbeddedAWS() as started:
        yield started


@pytest.fixture(scope="session")
def assembly(tmp_path_factory) -> Path:
    """The template of the stack, synthesised with the demo's settings."""
    from infra.synth import synth

    return synth(tmp_path_factory.mktemp("assembly"), {"max_concurrency": 2})


@pytest.fixture(scope="session")
def stack(embedded_aws, assembly):
    """The synthesised stack in the embedded AWS: tests share it and use tags of their own."""
    from xorack.local.deploy import deploy

    return deploy(embedded_aws, assembly)
