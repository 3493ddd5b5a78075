"""Broken versions of the code, which tests must catch.

A mutant replaces functions, each named by a reference to it, or edits their source. The function
object stays and gets other code: every module and table that holds the function runs the mutant.
"""

import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class Replaced:
    """A context in which a function is replaced.

    Attributes:
        function: The function.
        original: What it was, for the replacement to call.
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
        self.function.__code__ = eval(f"lambda *args, **named: {name}(*args, **named)").__code__

    def __exit__(self, *_: object) -> None:
        self.function.__code__ = self.original.__code__
        del self.function.__globals__[f"_replacement_{id(self)}"]


class Edit(NamedTuple):
    """An edit of a function's source; new lines are indented as the first line of `old`."""

    mutant: str
    function: Callable[..., Any]
    old: str
    new: str


def _edited_code(function: Callable[..., Any], edits: list[Edit]) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    name = function.__qualname__
    for _, _, old, new in edits:
        assert source.count(old) == 1, f"{name} has {old!r} {source.count(old)} times"
        before = source[: source.index(old)].rpartition("\n")[2]
        indent = before if before.isspace() else ""
        source = source.replace(old, new.replace("\n", "\n" + indent))
    namespace = dict(function.__globals__)
    flags = __future__.annotations.compiler_flag
    exec(compile(source, f"<mutant of {name}>", "exec", flags, True), namespace)
    edited = namespace[function.__name__]
    edited = getattr(edited, "fget", getattr(edited, "__func__", edited))  # a decorated method
    return edited.__code__


@contextmanager
def edited(edits: Sequence[Edit]) -> Iterator[None]:
    """Run edited functions."""
    with ExitStack() as stack:
        for function in {edit.function for edit in edits}:
            code = _edited_code(function, [edit for edit in edits if edit.function is function])
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = code
        yield
