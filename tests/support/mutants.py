"""Broken versions of the code, which tests must catch.

A mutant replaces functions, each named by a reference to it. The function object stays and gets
other code: every module and table that holds the function runs the mutant.
"""

from collections.abc import Callable
from inspect import isgeneratorfunction
from types import FunctionType
from typing import Any


class Replaced:
    """A context in which a function is replaced.

    Attributes:
        function: The function.
        original: The function before, for the replacement to call.
        by: The replacement; gets the original before the arguments of the call.
    """

    def __init__(self, function: Callable[..., Any], by: Callable[..., Any]) -> None:
        self.function: Any = function
        self.original = FunctionType(
            self.function.__code__, self.function.__globals__, self.function.__name__
        )
        self.original.__defaults__ = self.function.__defaults__
        self.original.__kwdefaults__ = self.function.__kwdefaults__
        self.by = by

    def __enter__(self) -> None:
        # Code finds names among the globals of its function alone.
        name = f"_replacement_{id(self)}"
        self.function.__globals__[name] = lambda *args, **named: self.by(
            self.original, *args, **named
        )
        call = f"{name}(*args, **named)"
        # The code of a generator may be replaced by that of a generator only.
        body = f"(yield from {call})" if isgeneratorfunction(self.function) else call
        self.function.__code__ = eval(f"lambda *args, **named: {body}").__code__

    def __exit__(self, *_: object) -> None:
        self.function.__code__ = self.original.__code__
        del self.function.__globals__[f"_replacement_{id(self)}"]
