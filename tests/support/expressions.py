"""DynamoDB's expressions, as far as the code uses them.

Updates have the clauses SET, REMOVE and ADD (to sets). Conditions compare attributes, or the sizes
of sets, with values by `=`, `<` and `<=`. They test existence, and combine terms with AND, OR and
parentheses: Python's operators, once the terms are translated.
"""

import re
from functools import lru_cache
from types import CodeType

Item = dict[str, dict]

_CLAUSE = re.compile(r"\b(SET|REMOVE|ADD)\b")
_TERM = re.compile(r"attribute_(not_)?exists\((#\w+)\)|(#\w+|size\(#\w+\)) (=|<=?) (:\w+)")
_COMPARISONS = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: int(one["N"]) < int(other["N"]),
    "<=": lambda one, other: int(one["N"]) <= int(other["N"]),
}


def holds(expression: str | None, item: Item | None, call: dict) -> bool:
    """Evaluate the condition of a call for an item; None stands for a missing item."""
    if not expression:
        return True
    names, values = call["ExpressionAttributeNames"], call.get("ExpressionAttributeValues", {})
    found = item or {}

    def exists(name: str) -> bool:
        return names[name] in found

    def compare(name: str, operator: str, value: str) -> bool:
        attribute = name.removeprefix("size(").removesuffix(")")
        if not exists(attribute):
            return False
        held = found[names[attribute]]
        if attribute != name:
            held = {"N": len(held["BS"])}
        return _COMPARISONS[operator](held, values[value])

    return eval(_condition(expression), {"exists": exists, "compare": compare})


@lru_cache(maxsize=1000)
def _condition(expression: str) -> CodeType:
    """Translate a condition to Python."""
    assert not re.sub(r"[\s()]|AND|OR", "", _TERM.sub("", expression)), expression

    def translated(term: re.Match) -> str:
        negated, existing, *comparison = term.groups()
        if existing:
            return f"({'not ' if negated else ''}exists({existing!r}))"
        return f"compare{tuple(comparison)}"

    python = _TERM.sub(translated, expression).replace("AND", "and").replace("OR", "or")
    return compile(python, expression, "eval")


def updated(item: Item, call: dict) -> Item:
    """Return an item after the update of a call."""
    names, values = call["ExpressionAttributeNames"], call.get("ExpressionAttributeValues", {})
    item = dict(item)
    for clause, parts in _clauses(call["UpdateExpression"]):
        for part in parts:
            name, _, value = part.partition(" = " if clause == "SET" else " ")
            if clause == "SET":
                item[names[name]] = values[value]
            elif clause == "REMOVE":
                item.pop(names[name], None)
            else:  # to a set
                ((kind, added),) = values[value].items()
                members = *item.get(names[name], {kind: ()})[kind], *added
                item[names[name]] = {kind: sorted({bytes(one) for one in members})}
    return item


@lru_cache(maxsize=1000)
def _clauses(expression: str) -> list[tuple[str, list[str]]]:
    _, *parts = _CLAUSE.split(expression)
    clauses = zip(parts[::2], parts[1::2], strict=True)
    return [(clause, re.split(r",\s*", text.strip())) for clause, text in clauses]
