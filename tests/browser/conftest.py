"""A headless browser, and the fixtures of tests/functional for the page."""

import pytest

from tests.functional.conftest import _few_shards, sqs, web  # noqa: F401
from tests.support.browser import NoBrowser, running_browser


@pytest.fixture(scope="session")
def browser():
    """Npm's headless Chromium."""
    try:
        with running_browser() as started:
            yield started
    except NoBrowser as error:
        pytest.skip(str(error))
