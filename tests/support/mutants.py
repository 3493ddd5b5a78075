"""Broken versions of the code, which tests must catch.

A mutant edits the source of one or more functions. The replaced text must occur exactly once, so
that no mutant outlives the code that it breaks. The function object stays and gets the code of the
edited source: every module that imported it runs the mutant.
"""

import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any, NamedTuple


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
