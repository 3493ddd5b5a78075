"""The file of `xorack diff --tables`: comparisons by name, with the options of the command."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from xorack.core.errors import ArgumentError, XorAckError

__all__ = ["read_tables"]

_INPUTS = ("left", "right")


def read_tables(
    file: str, command: click.Command, of_run: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Read a file of comparisons: what the command's parameters are for each, by its name.

    Args:
        file: A file of YAML.
        command: The command, whose options are fields.
        of_run: Parameters that are given once, for all tables.

    Raises:
        ArgumentError: The file cannot be read, or a field is wrong; the message names the entry.
    """
    found: dict[str, dict[str, Any]] = {}
    try:
        document = _load(Path(file).read_bytes())
        defaults, entries = _parts(document)
        for number, entry in enumerate(entries, 1):
            where = f"entry {number}"
            try:
                fields = defaults | _mapping(entry)
                name = fields.pop("name", None)
                if not isinstance(name, str) or not name.strip():
                    raise _Wrong(f"name: {_kind(name)}, expected a text")
                where = f"table {name}"
                if name in found:
                    raise _Wrong("name: another entry has it, too")
                found[name] = _parameters(fields, command, of_run)
            except _Wrong as error:
                raise _Wrong(f"{where}: {error}") from error
    except (OSError, _Wrong) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise ArgumentError("tables", problem=f"{file}: {problem}") from error
    return found


class _Wrong(XorAckError):
    """What is wrong with the file."""


def _load(text: bytes) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """PyYAML takes the last of two fields of one name."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [key.value for key, _ in node.value]
            if twice := [name for name in names if names.count(name) > 1]:
                problem = f"the field {twice[0]} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            return super().construct_mapping(node, deep)

    try:
        return Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no such date
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise _Wrong(f"{line}it is no YAML: {problem}") from error


def _parts(document: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the defaults and the entries of a document."""
    whole = _mapping(document)
    if unknown := [name for name in whole if name not in ("tables", "defaults")]:
        raise _Wrong(f"{unknown[0]}: unknown field, expected tables or defaults")
    entries = whole.get("tables")
    if not isinstance(entries, list) or not entries:
        raise _Wrong(f"tables: {_kind(entries)}, expected a list of entries")
    return _mapping(whole.get("defaults", {}), "defaults: "), entries


def _mapping(value: Any, where: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(f"{where}{_kind(value)}, expected fields and their values")
    # The word null, of the option, is YAML's null.
    return {"null" if name is None else str(name): of for name, of in value.items()}


def _kind(value: Any) -> str:
    """Name a value without its content, which aliases may make endless."""
    if isinstance(value, (dict, list)):
        return "fields" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else repr(value)[:80]


def _parameters(
    fields: dict[str, Any], command: click.Command, of_run: Collection[str]
) -> dict[str, Any]:
    """Let the command parse the fields as its options."""
    options = {
        name.removeprefix("--"): one
        for one in command.params
        if isinstance(one, click.Option) and one.name not in of_run
        for name in (*one.opts, *one.secondary_opts)
    }
    words: list[str] = []
    for name, value in fields.items():
        if name in _INPUTS:
            continue
        if name not in options:
            raise _Wrong(f"{name}: unknown field")
        words += _words(name, value, options[name])
        if name.removesuffix("-sql") in fields.keys() & {*_INPUTS}:
            raise _Wrong(f"a query takes an input's place: {name}")
    inputs = {name: _text(name, fields[name]) for name in _INPUTS if name in fields}
    try:
        with command.make_context("diff", words) as context:
            return context.params | inputs
    except click.UsageError as error:
        raise _Wrong(" ".join(error.format_message().split())) from error


def _words(name: str, value: Any, option: click.Option) -> list[str]:
    """Return a field as arguments of the command line: names and pairs are one, by commas."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise _Wrong(f"{name}: {_kind(value)}, expected true or false")
        is_on = value != (f"--{name}" in option.secondary_opts)
        return (option.opts if is_on else option.secondary_opts)[:1]
    if isinstance(value, list) and option.multiple:
        return [f"--{name}={_text(name, one)}" for one in value]
    if isinstance(value, list):
        value = ",".join(_quoted(_text(name, one)) for one in value)
    elif isinstance(value, dict):
        pairs = (f"{_text(name, key)}={_text(name, of)}" for key, of in value.items())
        value = ",".join(map(_quoted, pairs))
    return [f"--{name}={_text(name, value)}"]


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _Wrong(f"{name}: {_kind(value)}, expected a text: put it in quotes")
    return str(value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
