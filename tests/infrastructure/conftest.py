"""One synthesised template for all tests here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.synth import synth

from .templates import Template


@pytest.fixture(scope="session")
def synthesise(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Template]:
    """Synthesise with settings; the same settings give the same template, made once."""
    made: dict[str, Template] = {}

    def with_settings(**settings: Any) -> Template:
        key = json.dumps(settings, sort_keys=True)
        if key not in made:
            path = synth(tmp_path_factory.mktemp("cdk"), settings)
            made[key] = Template(path, json.loads(path.read_text(encoding="utf-8")))
        return made[key]

    return with_settings


@pytest.fixture(scope="session")
def template(synthesise: Callable[..., Template]) -> Template:
    """The template of the default settings."""
    return synthesise()
