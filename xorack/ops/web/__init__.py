"""The page of `xorack web`: chains and dead-lettered messages in a browser, on this machine."""

from xorack.ops.web.server import WebServer
from xorack.ops.web.site import DeadLetters, Site

__all__ = ["DeadLetters", "Site", "WebServer"]
