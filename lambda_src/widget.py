"""The dashboard's custom widget: the unfinished chains with the earliest deadlines, as HTML.

A button leads to a second page, the dead-lettered messages. CloudWatch calls the function on behalf
of the viewer of the dashboard. It reads only.
"""

from __future__ import annotations

import html
import json
import logging
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from lambda_src.environment import Invocation, services
from xorack.core.errors import ArgumentError, UnavailableError
from xorack.ops.snapshot import MAX_CHAINS, read_snapshot
from xorack.web.widget import Theme, render, render_error

_LOG = logging.getLogger("xorack")

_DEFAULT_LIMIT = 20
_PAGES = {"chains": "Unfinished chains", "dead-letters": "Dead letters"}

DESCRIPTION = f"""
## Unfinished chains
The chains that are open or wait for their `create`, the earliest deadline first: progress, age,
deadline, and the units that are started and not finished. A button leads to the dead-lettered
messages.

Parameter | Meaning
---|---
**limit** | How many chains or messages at most, 1 to {MAX_CHAINS}; by default {_DEFAULT_LIMIT}
**page** | The first page: {" or ".join(f"`{name}`" for name in _PAGES)}; by default `chains`

### Example parameters
``` yaml
limit: {_DEFAULT_LIMIT}
```
"""
"""The Markdown that CloudWatch shows to the editor of the widget."""


def handler(event: dict[str, Any], context: Any) -> str:
    """Render the widget.

    The event has the widget's parameters `limit` and `page`, and CloudWatch's `widgetContext`. The
    HTML says why if the content cannot be read. For ``{"describe": true}`` the result is Markdown.
    """
    if event.get("describe"):
        return DESCRIPTION
    limit = event.get("limit", _DEFAULT_LIMIT)
    if type(limit) is not int or not 1 <= limit <= MAX_CHAINS:
        raise ArgumentError("limit", limit, f"a whole number from 1 to {MAX_CHAINS}")
    page = event.get("page", "chains")
    if not isinstance(page, str) or page not in _PAGES:
        raise ArgumentError("page", page, " or ".join(_PAGES))
    dark = (event.get("widgetContext") or {}).get("theme") == "dark"
    theme: Theme = "dark" if dark else "light"
    render_page = _render_chains if page == "chains" else _render_dead_letters
    return render_page(services().invocation(context), limit, theme) + _button(page, limit, context)


def _render_chains(invocation: Invocation, limit: int, theme: Theme) -> str:
    store = invocation.store()
    try:
        return render(read_snapshot(store, limit), theme)
    except (UnavailableError, BotoCoreError, ClientError) as trouble:
        _LOG.error("chains not read", extra={"why": str(trouble)})
        return render_error(str(trouble), theme)


def _render_dead_letters(invocation: Invocation, limit: int, theme: Theme) -> str:
    from xorack.ops.redrive import Redrive  # few calls show this page
    from xorack.web.dead_letter_page import render_survey

    queue_url, retention_ms = invocation.dead_letter_queue
    try:
        letters = Redrive(queue_url, "", invocation.client("sqs"), retention_ms)
        return render_survey(letters.survey(limit=100, keep=limit, hide=False), theme)
    except (UnavailableError, BotoCoreError, ClientError) as trouble:
        _LOG.error("dead-lettered messages not read", extra={"why": str(trouble)})
        return render_error(str(trouble), theme, "dead-lettered messages")


def _button(page: str, limit: int, context: Any) -> str:
    """Return a button that calls this function for the other page, in CloudWatch's markup."""
    endpoint = getattr(context, "invoked_function_arn", None)
    if not endpoint:
        return ""
    (other,) = _PAGES.keys() - {page}
    parameters = html.escape(json.dumps({"page": other, "limit": limit}), quote=False)
    return (
        f'<a class="btn">{_PAGES[other]}</a><cwdb-action action="call" display="widget" '
        f'endpoint="{html.escape(endpoint)}">{parameters}</cwdb-action>'
    )
