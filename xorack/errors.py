"""The errors that xorack raises: the public name of `xorack.core.errors`."""

from xorack.core.errors import *  # noqa: F403
from xorack.core.errors import __all__  # noqa: F401
