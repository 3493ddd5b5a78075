"""The runbooks of docs/state.md, and a first deployment that fails, in the embedded AWS."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from infra.synth import synth
from tests.e2e.conftest import ROOT, assert_acked, chain, events_of, eventually, item_of
from tests.support.runbook import Shell, commands
from xorack.aws.sqs import send
from xorack.local.deploy import Stack, deploy, subscribe
from xorack.local.errors import DeployFailed

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

PAGE = (ROOT / "docs" / "state.md").read_text(encoding="utf-8")
