"""DynamoDB's update and condition expressions, as far as the simulated table supports them.

Updates have the clauses SET (also `if_not_exists`), REMOVE and ADD (to numbers and sets).
Conditions compare attributes with values by `=`, `<` and `<=`, test existence, and combine terms
with AND, OR and parentheses.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from tests.simulation.model import Item

Evaluator = Callable[[Item | None, dict, dict], bool]
"""Takes an item, names and values."""
_TOKEN = re.compile(r"\s*(<=|[<=()]|[#:]?\w+)")
_CLAUSE = re.compile(r"\b(SET|REMOVE|ADD)\b")


_COMPARISONS: dict[str, Callable[[dict, dict], bool]] = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: int(one["N"]) < int(other["N"]),
    "<=": lambda one, other: int(one["N"]) <= int(other["N"]),
}


def holds(expression: str | None, item: Item | None, call: dict) -> bool:
    """Evaluate the condition of a call for an item; None is no item."""
    if not expression:
        return True
    names = call.get("ExpressionAttributeNames", {})
    return _condition(expression)(item, names, call.get("ExpressionAttributeValues", {}))


def updated(item: Item, call: dict) -> Item:
    """Return an item after the update of a call."""
    names, values = call["ExpressionAttributeNames"], call.get("ExpressionAttributeValues", {})
    item = dict(item)
    for clause, parts in _clauses(call["UpdateExpression"]):
        for part in parts:
            name, _, value = part.partition(" = " if clause == "SET" else " ")
            if clause == "SET":
                kept, _, default = value.removesuffix(")").rpartition(" ")
                if not (kept.startswith("if_not_exists(") and names[name] in item):
                    item[names[name]] = values[default]
            elif clause == "REMOVE":
                item.pop(names[name], None)
            else:
                item[names[name]] = _sum(item.get(names[name]), values[value])
    return item


def _sum(old: dict | None, added: dict) -> dict:
    """Return what ADD makes of a number or a set."""
    ((kind, value),) = added.items()
    before = old[kind] if old else ("0" if kind == "N" else [])
    if kind == "N":
        return {kind: str(int(before) + int(value))}
    return {kind: sorted({bytes(one) for one in before} | {bytes(one) for one in value})}


@lru_cache(maxsize=1000)
def _clauses(expression: str) -> list[tuple[str, list[str]]]:
    _, *parts = _CLAUSE.split(expression)
    clauses = zip(parts[::2], parts[1::2], strict=True)
    return [(clause, re.split(r",\s*(?![^(]*\))", text.strip())) for clause, text in clauses]


@lru_cache(maxsize=1000)
def _condition(expression: str) -> Evaluator:
    tokens = _TOKEN.findall(expression)
    assert "".join(tokens) == re.sub(r"\s", "", expression), f"not supported: {expression}"
    condition, rest = _parse_or(tokens)
    assert not rest, f"not supported: {expression}"
    return condition


def _parse_or(tokens: list[str]) -> tuple[Evaluator, list[str]]:
    return _parse_operator("OR", any, _parse_and, tokens)


def _parse_and(tokens: list[str]) -> tuple[Evaluator, list[str]]:
    return _parse_operator("AND", all, _parse_term, tokens)


def _parse_operator(operator, combine, parse_operand, tokens) -> tuple[Evaluator, list[str]]:
    operands = []
    while True:
        operand, tokens = parse_operand(tokens)
        operands.append(operand)
        if tokens[:1] != [operator]:
            break
        tokens = tokens[1:]
    return lambda *context: combine(operand(*context) for operand in operands), tokens


def _parse_term(tokens: list[str]) -> tuple[Evaluator, list[str]]:
    first, second, third, *rest = tokens
    if first == "(":
        condition, rest = _parse_or(tokens[1:])
        assert rest[0] == ")"
        return condition, rest[1:]
    if first in ("attribute_exists", "attribute_not_exists"):
        expected = first == "attribute_exists"
        assert (second, rest[0]) == ("(", ")")
        return (
            lambda item, names, _: (item is not None and names[third] in item) == expected
        ), rest[1:]
    compare = _COMPARISONS[second]
    return (
        lambda item, names, values: (
            item is not None and names[first] in item and compare(item[names[first]], values[third])
        )
    ), rest
