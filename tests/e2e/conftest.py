"""The embedded AWS, once for all tests that need it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def embedded_aws(_no_real_aws):
    """An embedded AWS, running, for stacks under names of their own."""
    from xorack.local.embedded import EmbeddedAWS

    with EmbeddedAWS() as started:
        yield started


@pytest.fixture(scope="session")
def assembly(tmp_path_factory) -> Path:
    """The template of the stack, synthesised as the demo has it."""
    from infra.synth import synth

    return synth(tmp_path_factory.mktemp("assembly"), {"max_concurrency": 2})


@pytest.fixture(scope="session")
def stack(embedded_aws, assembly):
    """The synthesised stack in the embedded AWS: tests share it, so their tags are their own."""
    from xorack.local.deploy import deploy

    return deploy(embedded_aws, assembly)
