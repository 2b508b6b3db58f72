"""Mutants of our sources: one small change each, of Python by its syntax tree, of C by its text.

A mutant is identified by its file, function, original and mutated text, and its ordinal among equal
ones in the function. It therefore stays the same as long as the function does. Only the changed
span of the text is replaced.

Left out are annotations, decorators, types, strings, errors' and logs' arguments, what only a type
checker reads, and functions that end processes, remove files or change mounts: a mutant of these
could do harm outside of its copy.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

LAYERS: Final = ("specs", "planner", "executors", "collplan")
SHIM: Final = "collplan/preload/shim"
DANGEROUS: Final = frozenset(
    {
        "kill",
        "killpg",
        "rmtree",
        "unlink",
        "rmdir",
        "fork",
        "unshare",
        "setns",
        "mount",
        "umount",
        "send_signal",
        "setrlimit",
    }
)
"""Methods and functions of modules whose callers are not mutated."""
LOGS: Final = frozenset({"logging", "logger", "log", "warnings"})
SYMMETRIC: Final = frozenset(
    {
        "isinstance",
        "issubclass",
        "cast",
        "max",
        "min",
        "gcd",
        "lcm",
        "maximum",
        "minimum",
        "logical_and",
        "logical_or",
        "print",
    }
)
"""Functions whose arguments are not swapped."""
UNTOUCHED: Final = frozenset({"strict", "help", "frozen", "slots", "encoding", "stacklevel"})
"""Keywords whose values hardly any test should notice."""
# fmt: off
OPERATORS: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"),
}
C_OPERATORS: Final = {
    " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ",
    " && ": " || ", " || ": " && ", " + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ",
    " += ": " -= ", " -= ": " += ", " % ": " / ",
}
# fmt: on
TEXTS: Final = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a file; `start` and `end` are byte offsets, `lines` those of the statement."""

    file: str
    function: str
    operator: str
    original: str
    mutated: str
    ordinal: int = 0
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)
    lines: tuple[int, int] = field(default=(1, 1), compare=False)

    @property
    def identity(self) -> tuple[str, str, str, str, int]:
        """Return what names the mutant in files of results and of equivalent mutants."""
        return self.file, self.function, self.original, self.mutated, self.ordinal

    @property
    def package(self) -> str:
        """Return the folder below a layer, or the layer for files that lie loose in it."""
        parts = Path(self.file).parent.parts
        return "/".join(parts) if self.file.startswith(SHIM) else "/".join(parts[:2])

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        coding = "latin-1" if self.file.endswith(".c") else "utf-8"
        return source[: self.start] + self.mutated.encode(coding) + source[self.end :]


def source_files(root: Path) -> list[str]:
    """Return the paths of all sources below a root; links in `collplan` are not followed."""
    links = tuple(f"collplan/{layer}/" for layer in LAYERS[:-1])
    found = [path for layer in LAYERS for path in sorted((root / layer).rglob("*.py"))]
    found += sorted(root.glob(f"{SHIM}/*.c"))
    names = [path.relative_to(root).as_posix() for path in found]
    return [name for name in names if not name.startswith(links)]


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file, in the order of the text."""
    found = c_mutants(file, source) if file.endswith(".c") else _Python(file, source).found
    counts: Counter[Any] = Counter()
    numbered = []
    unique = {(one.start, one.end, one.mutated): one for one in found}
    for _, one in sorted(unique.items()):
        numbered.append(replace(one, ordinal=counts[one.identity]))
        counts[one.identity] += 1
    return numbered


def sample(root: Path, n: int, seed: int) -> list[Mutant]:
    """Return random mutants: packages by their numbers of lines, at most one mutant of a statement.

    A mutant is taken by a hash of its identity and the seed, so that a changed function changes
    hardly any of the others.
    """
    lines: Counter[str] = Counter()
    found: defaultdict[str, dict[tuple[str, int], tuple[str, Mutant]]] = defaultdict(dict)
    for file in source_files(root):
        source = (root / file).read_bytes()
        lines[Mutant(file, "", "", "", "").package] += source.count(b"\n")
        for one in mutants_of(file, source):
            key = hashlib.sha256(f"{seed} {one.identity}".encode()).hexdigest()
            place = one.file, one.lines[0]
            found[one.package][place] = min((key, one), found[one.package].get(place, (key, one)),
                                            key=lambda pair: pair[0])  # fmt: skip
    chosen = []
    for package, number in _shares(lines, n).items():
        chosen += sorted(found[package].values(), key=lambda pair: pair[0])[:number]
    return [one for _, one in sorted(chosen, key=lambda pair: pair[0])]


def _shares(weights: Counter[str], n: int) -> dict[str, int]:
    """Divide `n` by weights; the largest remainders are rounded up."""
    exact = {name: n * weight / weights.total() for name, weight in weights.items()}
    shares = {name: int(share) for name, share in exact.items()}
    rest = sorted(exact, key=lambda name: (shares[name] - exact[name], name))
    return shares | {name: shares[name] + 1 for name in rest[: n - sum(shares.values())]}


class _Python(ast.NodeVisitor):
    """Finder of the mutants of a Python file."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._source = file, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._lines = (1, 1)
        self.found: list[Mutant] = []
        self.visit(ast.parse(source))

    def _span(self, node: Any) -> tuple[int, int]:
        first = self._starts[node.lineno - 1] + node.col_offset
        return first, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _add(self, operator: str, node: ast.AST, mutated: str) -> None:
        self._add_span(operator, *self._span(node), mutated)

    def _add_span(self, operator: str, start: int, end: int, mutated: str) -> None:
        original = self._source[start:end].decode()
        function = ".".join(self._names)
        spans = start, end, self._lines
        self.found.append(Mutant(self._file, function, operator, original, mutated, 0, *spans))

    def _exchange(self, operator: str, whole: ast.AST, kind: ast.AST, start: int, end: int) -> None:
        """Exchange the operator that lies between two operands."""
        old, new = OPERATORS.get(type(kind), ("@", "@"))
        gap = self._source[start:end].decode()
        if gap.count(old) == 1 and old != new and "#" not in gap:
            at = start + len(gap[: gap.index(old)].encode())
            first, last = self._span(whole)
            after = self._source[at + len(old) : last]
            self._add(operator, whole, (self._source[first:at] + new.encode() + after).decode())

    def visit(self, node: ast.AST) -> None:
        """Visit a node; note the lines of a statement, or those of its head."""
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            self._lines = node.lineno, max(node.lineno, last)
            if self._can_drop(node):
                self._add("dropped statement", node, "pass")
        super().visit(node)

    def _can_drop(self, node: ast.stmt) -> bool:
        if not self._names:
            return False
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Call) and not _is_log(node.value)
        if isinstance(node, ast.Assign):
            return isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        if isinstance(node, ast.If):
            return not node.orelse and isinstance(node.body[-1], ast.Return | ast.Continue)
        if isinstance(node, ast.Raise):
            return "NotImplementedError" not in self._text(node)
        return isinstance(node, ast.AugAssign | ast.Continue | ast.Break)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit the body of a class."""
        self._visit_body(node)

    def visit_FunctionDef(self, node: Function) -> None:
        """Visit defaults and body of a function that can do no harm and is not abstract."""
        called = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
        is_dangerous = any(isinstance(f, ast.Attribute) and f.attr in DANGEROUS for f in called)
        decorators = " ".join(map(ast.unparse, node.decorator_list))
        if is_dangerous or "abstractmethod" in decorators or "overload" in decorators:
            return
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        self._visit_body(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def _visit_body(self, node: Function | ast.ClassDef) -> None:
        self._names.append(node.name)
        for one in node.body:
            self.visit(one)
        self._names.pop()

    def visit_If(self, node: ast.If) -> None:
        """Visit a condition, unless it is for type checkers or programs."""
        if not re.search(r"\bTYPE_CHECKING\b|__name__", ast.unparse(node.test)):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Visit the value of an assignment, unless it defines a type."""
        name = node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
        is_type = not self._names and re.match(r"_?[A-Z]\w*[a-z]", name)
        if not (is_type or name in ("__all__", "__slots__", "__match_args__")):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value of an assignment with a type."""
        if node.value is not None and "TypeAlias" not in ast.unparse(node.annotation):
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Exchange the operator of an assignment such as ``+=``."""
        if not isinstance(node.value, (*TEXTS, ast.Dict, ast.Set)) and not _is_text(node.value):
            gap = self._span(node.target)[1], self._span(node.value)[0]
            self._exchange("arithmetic", node, node.op, *gap)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave errors alone."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts alone."""

    def visit_Compare(self, node: ast.Compare) -> None:
        """Exchange operators of a comparison."""
        operands = [node.left, *node.comparators]
        for left, kind, right in zip(operands, node.ops, operands[1:], strict=False):
            gap = self._span(left)[1], self._span(right)[0]
            self._exchange("comparison", node, kind, *gap)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Exchange ``and`` and ``or``."""
        for left, right in pairwise(node.values):
            gap = self._span(left)[1], self._span(right)[0]
            self._exchange("logic", node, node.op, *gap)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drop a ``not`` or the sign of a name."""
        if isinstance(node.op, ast.Not):
            self._add("logic", node, self._text(node).removeprefix("not").lstrip())
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self._add("arithmetic", node, self._text(node).removeprefix("-").lstrip())
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Exchange the operator between numbers."""
        if not any(isinstance(side, TEXTS) or _is_text(side) for side in (node.left, node.right)):
            gap = self._span(node.left)[1], self._span(node.right)[0]
            self._exchange("arithmetic", node, node.op, *gap)
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        """Move the bounds of a slice."""
        for bound in filter(None, (node.lower, node.upper)):
            self._move(bound)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Move the end of a range, and swap arguments."""
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if _is_log(node):
            return
        if name == "range" and node.args:
            self._move(node.args[min(1, len(node.args) - 1)])
        if name not in SYMMETRIC:
            self._swap(node.args)
        self.visit(node.func)
        is_of_type = name in ("isinstance", "issubclass", "cast", "TypeVar", "NewType")
        for one in node.args[:1] if is_of_type else node.args:
            self.visit(one)
        for keyword in node.keywords:
            if keyword.arg not in UNTOUCHED:
                self.visit(keyword.value)

    def _swap(self, arguments: list[ast.expr]) -> None:
        """Swap the first two neighbors that may be of the same type."""
        for left, right in pairwise(arguments):
            texts = self._text(left), self._text(right)
            (start, middle), (after, end) = self._span(left), self._span(right)
            between = self._source[middle:after].decode()
            kinds = {type(left), type(right)}
            is_alike = kinds == {ast.Constant} or not kinds & {ast.Constant, *TEXTS, ast.Starred}
            is_alike &= not (_is_text(left) or _is_text(right))
            if is_alike and texts[0] != texts[1] and "#" not in between:
                self._add_span("swapped arguments", start, end, texts[1] + between + texts[0])
                return

    def _move(self, bound: ast.expr) -> None:
        text = self._text(bound)
        if isinstance(bound, ast.IfExp | ast.BoolOp | ast.Compare | ast.Lambda):
            text = f"({text})"
        if not isinstance(bound, ast.Constant | ast.UnaryOp | ast.Starred):
            self._add("off by one", bound, f"{text} + 1")

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change numbers and truth values."""
        value = node.value
        if isinstance(value, bool):
            self._add("constant", node, str(not value))
        elif isinstance(value, int):
            self._add("constant", node, str(value + 1))
        elif isinstance(value, float):
            self._add("constant", node, repr(2 * value if value else 1.0))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_log(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in LOGS


C_HIDDEN: Final = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])*\'|^ *#[^\n]*',
    re.DOTALL | re.MULTILINE,
)
"""Comments, texts, characters and lines of the preprocessor."""
C_DANGER: Final = re.compile(r"\b(kill|unlink|fork|rmdir|exec\w*)\(")
C_STATEMENT: Final = re.compile(r"^ +((?:\w[\w.>\[\]-]* [+|-]?= |\w+\()[^;={}\n]*;)$", re.MULTILINE)
C_SWAP: Final = re.compile(r"\b(?!if|while|for|switch)\w+\(([^(),\n]+), ([^(),\n]+)[,)]")


def c_mutants(file: str, source: bytes) -> list[Mutant]:
    """Return the mutants of a C file: of the bodies of functions that can do no harm."""
    text = source.decode("latin-1")  # a character is a byte
    hidden = C_HIDDEN.sub(lambda found: re.sub(r"[^\n]", "\x00", found.group()), text)
    found = []
    for name, first, last in _bodies(hidden):
        if C_DANGER.search(hidden, first, last):
            continue
        for operator, start, end, mutated in _c_changes(hidden, first, last):
            before = text.rindex("\n", 0, start) + 1
            before += len(text[before:]) - len(text[before:].lstrip(" "))
            after = text.index("\n", end)
            line = text.count("\n", 0, start) + 1
            whole = text[before:start] + mutated + text[end:after]
            spans = before, after, (line, line)
            found.append(Mutant(file, name, operator, text[before:after], whole, 0, *spans))
    return found


def _bodies(text: str) -> Iterator[tuple[str, int, int]]:
    """Generate names, starts and ends of the bodies of functions, which end in column 0."""
    for head in re.finditer(r"^\w[^;{}]*?\b(\w+)\([^;{}]*\) \{", text, re.MULTILINE):
        line_end = text.find("\n", head.end())
        is_short = text[head.end() : line_end].rstrip().endswith("}")
        yield head[1], head.end(), line_end if is_short else text.find("\n}", head.end())


def _c_changes(text: str, first: int, last: int) -> Iterable[tuple[str, int, int, str]]:
    for old, new in C_OPERATORS.items():
        kind = "logic" if old in (" && ", " || ") else "comparison"
        kind = "arithmetic" if old[1] in "+-*/%" else kind
        for one in re.finditer(re.escape(old), text[first:last]):
            yield kind, first + one.start(), first + one.end(), new
    for one in re.finditer(r"(?<![\w.])\d+(?![\w.])", text[first:last]):
        yield "constant", first + one.start(), first + one.end(), str(int(one[0]) + 1)
    for one in C_STATEMENT.finditer(text, first, last):
        if one[1].count("(") == one[1].count(")"):
            yield "dropped statement", one.start(1), one.end(1), ";"
    for one in C_SWAP.finditer(text, first, last):
        if one[1] != one[2] and not re.search(r"[=\x00]|^const", one[0]):
            yield "swapped arguments", one.start(1), one.end(2), f"{one[2]}, {one[1]}"
