"""The texts of all errors that the code raises: each names a field, and says what to do.

error-texts.txt lists them for reviewers. ``python -m tests.unit.test_error_texts`` writes it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).with_name("error-texts.txt")
FOLDERS = ("xorack", "lambda_src", "infra", "pipeline", "demo")
ERRORS = re.compile(r"(\w+\.)*(\w*Error|\w*Exception|BadParameter|DemoFailed|InvalidDatabase)")
OF_CALLS = re.compile(r".*(Client|Unavailable|Timeout|Attribute|Conflict|Batch)Error")
"""Errors that only carry another error, or that Python and boto3 define."""
ADVICE = re.compile(
    r"expected |[;?] ?|\b(use|run|pass|set|name|install|add|put|retry|repeat|rename|call|start)\b"
    r"|\b(requires?|needs?|correct|give|cast|must|cannot|Missing|read it|grant|finish|write)\b"
    r"|\b(kill|move|see|wait|remove|synthesise|defect)\b"
)
"""A text with one of these says what is expected or what to do."""
CAUSES = re.compile(
    r"\{[^{}]*\b(error|why|reason|reasons|problem|ResourceStatus\w*|end|last|response)\b"
)
"""A text with one of these quotes the cause, which says more."""
COMPLETED = re.compile(
    r"xorack/(core/strict_json|local/ministack_process)\.py"  # the caller's error, and AWS's
    r"|xorack/aws/stack.py: StateError: (there is no|stack)"  # `xorack.cli` adds its options
)
"""Errors of which another one says what to do."""


def texts(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """Return the expressions of names that are only assigned, and only texts, in a function."""
    assigned: dict[str, list[ast.expr]] = {}
    stores: list[str] = []
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores.append(node.id)
    kinds = (ast.Constant, ast.JoinedStr, ast.BinOp)
    return {
        name: values
        for name, values in assigned.items()
        if stores.count(name) == len(values) and all(isinstance(v, kinds) for v in values)
    }


def template(node: ast.expr, known: dict[str, list[ast.expr]]) -> str:
    """Return an expression as a text, with a placeholder for each value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(template(value, known) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return template(node.value, known)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left, known) + template(node.right, known)
    if isinstance(node, ast.IfExp):
        return f"({template(node.body, known)} | {template(node.orelse, known)})"
    if isinstance(node, ast.Name) and node.id in known:
        others = {name: known[name] for name in known if name != node.id}
        values = dict.fromkeys(template(value, others) for value in known[node.id])
        return " | ".join(values) if len(values) == 1 else f"({' | '.join(values)})"
    return "{" + ast.unparse(node).replace("\n", " ") + "}"


def text_of(call: ast.Call, known: dict[str, list[ast.expr]]) -> str:
    """Return the text of an error; an empty one for an error that repeats another."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    parts = [template(argument, known) for argument in call.args]
    if ast.unparse(call.func).endswith("ArgumentError"):
        if "problem" in named:
            problem = template(named["problem"], known)
            return "" if "removeprefix" in problem else f"{parts[0]}: {problem}"
        return f"{parts[0]}: {parts[1]}, expected {parts[2]}" if len(parts) == 3 else ""
    text = " ".join(parts[0].split()) if parts else ""
    is_repeated = re.fullmatch(r"\{.*\}", text) and text.count("{") == 1
    return "" if is_repeated else text


def error_texts() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
            seen: set[int] = set()
            for scope in reversed([tree, *functions]):
                known = texts(scope)
                for node in ast.walk(scope):
                    if not isinstance(node, ast.Call) or id(node) in seen:
                        continue
                    name = ast.unparse(node.func)
                    if not ERRORS.fullmatch(name) or OF_CALLS.fullmatch(name):
                        continue
                    seen.add(id(node))
                    if text := " ".join(text_of(node, known).split()):
                        yield f"{path.relative_to(ROOT)}: {name.rpartition('.')[2]}: {text}"


def test_the_texts_of_errors_are_those_that_reviewers_have_read():
    assert SNAPSHOT.read_text(encoding="utf-8").splitlines() == sorted(set(error_texts()))


@pytest.mark.parametrize("line", SNAPSHOT.read_text(encoding="utf-8").splitlines())
def test_an_error_names_a_thing_and_says_what_to_do(line):
    _, kind, text = line.split(": ", 2)
    advises = ADVICE.search(text) or CAUSES.search(text) or COMPLETED.match(line)
    assert advises, "say what is expected, or what to do"
    is_named = kind == "ArgumentError" or re.search(r"\{|--\w|[A-Z]{3}|the \w+", text)
    assert is_named or kind == "BadParameter", "name the field or the thing"


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(sorted(set(error_texts()))) + "\n", encoding="utf-8")
