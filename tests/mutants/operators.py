"""Find the small changes that a mutation run makes to a file, each as text before and after.

A mutant is an edit of the source, not a syntax tree that is printed again: only the changed symbol
differs, and a survivor is shown as the line that a developer knows. Annotations, decorators,
f-strings and what only a type checker reads are not changed.
"""

from __future__ import annotations

import ast
import bisect
import io
import tokenize
from typing import TYPE_CHECKING, TypeAlias

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Mutant", "find_mutants"]

COMPARISONS: Mapping[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}
SWAPPED_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
NEGATIONS = frozenset({ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn})
"""Comparisons that the operator `comparison` already turns into their opposite."""
TEXTS_AND_LISTS = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple)
"""Operands that only `+` takes: any other operator is an error in every test."""
UNREAD_ARGUMENTS = frozenset({"init", "kw_only", "repr", "strict"})
"""Arguments of other libraries' functions that a test of ours says nothing about."""

Edit: TypeAlias = tuple[int, int, str]
"""Start and end offset of replaced text, and the new text."""


@attrs.frozen
class Mutant:
    """A changed file."""

    line: int
    """The first line that differs, from 1 on."""
    operator: str
    before: str
    """The lines that differ, without indentation."""
    after: str
    source: str = attrs.field(repr=False)
    """The whole file with the change."""


def find_mutants(source: str) -> list[Mutant]:
    """List all mutants of a file, in the order of the file."""
    return _Finder(source).find()


class _Finder:
    """The walk through one file."""

    def __init__(self, source: str) -> None:
        self.source = source
        # `splitlines` also splits where Python begins no line
        self.lines = [f"{line}\n" for line in source.split("\n")]
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.tokens = [
            (
                self.starts[token.start[0] - 1] + token.start[1],
                self.starts[token.end[0] - 1] + token.end[1],
                token.string,
            )
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type in {tokenize.OP, tokenize.NAME}
        ]
        self.mutants: list[Mutant] = []

    def find(self) -> list[Mutant]:
        self._visit(ast.parse(self.source), returns_bool=False)
        return sorted(self.mutants, key=lambda mutant: mutant.line)

    def _visit(self, node: ast.AST, *, returns_bool: bool) -> None:
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            return
        for name, edits in self._symbols(node):
            self._add(name, edits)
        for condition in _conditions(node, returns_bool=returns_bool):
            self._add(
                "condition",
                [
                    (self._start(condition), self._start(condition), "not ("),
                    (self._end(condition), self._end(condition), ")"),
                ],
            )
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            returns_bool = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        for child in _children(node):
            self._visit(child, returns_bool=returns_bool)

    def _symbols(self, node: ast.AST) -> Iterator[tuple[str, list[Edit]]]:
        """Yield the changes of one node's symbols: the operator's name and the edits."""
        match node:
            case ast.Compare():
                yield from self._comparisons(node)
            case ast.BinOp() | ast.AugAssign():
                yield from self._arithmetic(node)
            case ast.UnaryOp(op=ast.USub() | ast.Not() as op):
                start = self._start(node)
                yield (
                    "unary",
                    [(start, start + len("not " if isinstance(op, ast.Not) else "-"), "")],
                )
            case ast.BoolOp():
                symbol, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                yield (
                    "boolean",
                    [
                        self._replace(symbol, other, left, right)
                        for left, right in zip(node.values, node.values[1:], strict=False)
                    ],
                )
            case ast.Constant():
                yield from self._constants(node)
            case ast.Call(func=ast.Name(id=name)) if name in SWAPPED_CALLS:
                yield (
                    "swapped",
                    [(self._start(node.func), self._end(node.func), SWAPPED_CALLS[name])],
                )
            case ast.Slice():
                yield from self._slices(node)
            case _:
                pass

    def _comparisons(self, node: ast.Compare) -> Iterator[tuple[str, list[Edit]]]:
        operands = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
            symbol, other = COMPARISONS[type(op)]
            yield "comparison", [self._replace(symbol, other, left, right)]

    def _arithmetic(self, node: ast.BinOp | ast.AugAssign) -> Iterator[tuple[str, list[Edit]]]:
        left, right = (
            (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        )
        if type(node.op) not in ARITHMETIC or any(
            isinstance(side, TEXTS_AND_LISTS)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str))
            for side in (left, right)
        ):
            return
        symbol, other = ARITHMETIC[type(node.op)]
        end = "=" if isinstance(node, ast.AugAssign) else ""
        yield "arithmetic", [self._replace(symbol + end, other + end, left, right)]

    def _constants(self, node: ast.Constant) -> Iterator[tuple[str, list[Edit]]]:
        match node.value:
            case bool():
                others = [str(not node.value)]
            case int():
                others = [str(node.value + 1), *([str(node.value - 1)] if node.value > 1 else [])]
            case float():
                others = [repr(float(f"{node.value * 1.1 or 0.1:.6g}"))]
            case _:
                others = []
        for other in others:
            yield "constant", [(self._start(node), self._end(node), other)]

    def _slices(self, node: ast.Slice) -> Iterator[tuple[str, list[Edit]]]:
        """Take the other side of a slice with one bound, and one bound from a slice with two."""
        if node.step is not None or (node.lower is None and node.upper is None):
            return
        lower, upper = (self._text(bound) if bound else "" for bound in (node.lower, node.upper))
        yield (
            "slice",
            [
                (
                    self._start(node),
                    self._end(node),
                    f"{lower}:" if lower and upper else f"{upper}:{lower}",
                )
            ],
        )

    def _replace(self, symbol: str, other: str, left: ast.expr, right: ast.expr) -> Edit:
        """Replace the operator between two operands.

        It is looked for among the tokens, since a comment may hold the same characters.
        """
        words = symbol.split(" ")
        between = self.tokens[self._token(self._end(left)) : self._token(self._start(right))]
        for at in range(len(between)):
            found = between[at : at + len(words)]
            if [text for _, _, text in found] == words:
                return found[0][0], found[-1][1], other
        problem = f"no {symbol!r} between two operands in line {right.lineno}"
        raise LookupError(problem)

    def _token(self, offset: int) -> int:
        """Return the place of the first token from an offset on."""
        return bisect.bisect_left(self.tokens, offset, key=lambda token: token[0])

    def _add(self, operator: str, edits: Sequence[Edit]) -> None:
        changed = self.source
        for start, end, text in sorted(edits, reverse=True):
            changed = changed[:start] + text + changed[end:]
        first = self._line(min(start for start, _, _ in edits))
        last = self._line(max(end for _, end, _ in edits))
        ends = [self.starts[last], self.starts[last] + len(changed) - len(self.source)]
        before, after = (
            "\n".join(line.strip() for line in text[self.starts[first - 1] : end].splitlines())
            for text, end in zip((self.source, changed), ends, strict=True)
        )
        self.mutants.append(Mutant(first, operator, before, after, changed))

    def _line(self, offset: int) -> int:
        return bisect.bisect_right(self.starts, offset)

    def _start(self, node: ast.expr | ast.Slice) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.Slice) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _text(self, node: ast.expr) -> str:
        return self.source[self._start(node) : self._end(node)]

    def _offset(self, line: int, column: int) -> int:
        """Return an offset in characters; the syntax tree counts columns in bytes."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())


def _conditions(node: ast.AST, *, returns_bool: bool) -> Iterator[ast.expr]:
    """Yield the conditions of a node that no other operator negates."""
    conditions: list[ast.expr] = []
    match node:
        case (
            ast.If(test=test)
            | ast.While(test=test)
            | ast.IfExp(test=test)
            | ast.match_case(guard=ast.expr() as test)
        ):
            conditions = [test]
        case ast.comprehension(ifs=conditions):
            pass
        case ast.Return(value=ast.expr() as value) if returns_bool:
            conditions = [value]
        case _:
            pass
    for condition in conditions:
        match condition:
            case ast.Constant() | ast.UnaryOp(op=ast.Not()):
                pass
            case ast.Compare(ops=[op]) if type(op) in NEGATIONS:
                pass
            case _:
                yield condition


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node that run."""
    if isinstance(node, ast.JoinedStr):  # until Python 3.12 nodes in it have no positions
        return
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType]  # the fields of a node
            if isinstance(child, ast.AST) and not (
                isinstance(child, ast.keyword) and child.arg in UNREAD_ARGUMENTS
            ):
                yield child
