"""The dashboard's custom widget: the unfinished chains with the earliest deadlines, as HTML.

CloudWatch calls the function on behalf of the viewer of the dashboard. It reads only.
"""

from __future__ import annotations

import logging
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from lambda_src.environment import services
from xorack.core.errors import ArgumentError, UnavailableError
from xorack.ops.snapshot import MAX_CHAINS, read_snapshot
from xorack.web.widget import Theme, render, render_error

_LOG = logging.getLogger("xorack")

_DEFAULT_LIMIT = 20

DESCRIPTION = f"""
## Unfinished chains
The chains that are open or wait for their `create`, the earliest deadline first: progress, age,
deadline, and the units that are started and not finished.

Parameter | Meaning
---|---
**limit** | How many chains at most, 1 to {MAX_CHAINS}; by default {_DEFAULT_LIMIT}

### Example parameters
``` yaml
limit: {_DEFAULT_LIMIT}
```
"""
"""The Markdown that CloudWatch shows to the editor of the widget."""


def handler(event: dict[str, Any], context: Any) -> str:
    """Render the widget.

    The event has the widget's parameter `limit` and CloudWatch's `widgetContext`. The HTML says why
    if the chains cannot be read. For ``{"describe": true}`` the result is Markdown.
    """
    if event.get("describe"):
        return DESCRIPTION
    limit = event.get("limit", _DEFAULT_LIMIT)
    if type(limit) is not int or not 1 <= limit <= MAX_CHAINS:
        raise ArgumentError("limit", limit, f"a whole number from 1 to {MAX_CHAINS}")
    dark = (event.get("widgetContext") or {}).get("theme") == "dark"
    theme: Theme = "dark" if dark else "light"
    store = services().invocation(context).store()
    try:
        return render(read_snapshot(store, limit), theme)
    except (UnavailableError, BotoCoreError, ClientError) as trouble:
        _LOG.error("chains not read", extra={"why": str(trouble)})
        return render_error(str(trouble), theme)
