"""Draws mutants of the package, and finds them again in later sources: pure functions over syntax trees.

A mutant is one statement with one small change; of a compound statement it is the header only.
``python -m mutants.draw`` draws anew, into `drawn.json`, in an order whose every prefix is
a fair sample of all packages.
"""

from __future__ import annotations

import ast
import copy
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "mcp_host"
DRAWN = Path(__file__).with_name("drawn.json")

SEED = 20261126
COUNT = 220

OF_TYPES = ("TypeVar(", "ParamSpec(", "NewType(")
UNREACHABLE = ("assert_never(", "raise AssertionError(")
REMOVED = frozenset(("pass", "return None"))
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
BLOCKS = frozenset(("body", "orelse", "finalbody", "handlers", "cases"))
NOT_RUN = frozenset(("annotation", "returns", "decorator_list", "bases", "msg"))


@dataclass(frozen=True)
class Mutant:
    id: int
    file: str
    qualname: str
    line: int  # where it was when it was drawn
    original: str
    occurrence: int  # among the equal statements of this name
    mutated: str
    equivalent: str | None = None  # the proof that no test can tell it from the original

    @property
    def package(self) -> str:
        return package_of(self.file)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.original}  ->  {self.mutated}"


@dataclass(frozen=True, eq=False)
class Place:
    """A statement that runs. *at_import*: once, when its module is imported."""

    qualname: str
    statement: ast.stmt
    at_import: bool

    @property
    def original(self) -> str:
        return text_of(self.statement)


def package_of(file: str) -> str:
    first, _, rest = file.partition("/")
    return first if rest else "(top level)"


def text_of(statement: ast.stmt) -> str:
    """The statement's source; a compound one's header only."""
    return ast.unparse(_header(statement)).removesuffix("\n    pass")


def parse(text: str) -> ast.stmt:
    """The statement that `text_of` wrote."""
    return ast.parse(f"{text}\n    pass" if text.endswith(":") else text).body[0]


def _header(statement: ast.stmt) -> ast.stmt:
    if not hasattr(statement, "body"):
        return statement
    header = copy.copy(statement)
    for block in BLOCKS & {*statement._fields}:
        setattr(header, block, [ast.Pass()] if block == "body" else [])
    if hasattr(header, "decorator_list"):
        header.decorator_list = []
    return header


def places(source: str) -> Iterator[Place]:
    """The statements that run, in order: no docstrings, no types, nothing that is excluded from coverage."""
    lines = source.splitlines()

    def walk(block: Iterable[ast.AST], scope: tuple[str, ...], at_import: bool) -> Iterator[Place]:
        for node in block:
            inner, later = scope, at_import
            if isinstance(node, ast.stmt):
                if "pragma: no cover" in lines[node.lineno - 1] or _never_runs(node):
                    continue
                if not _is_for_types(node):
                    yield Place(".".join(scope), node, at_import)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = (*scope, node.name)
                later = at_import and isinstance(node, ast.ClassDef)
            for name in ("body", "handlers", "orelse", "finalbody", "cases"):
                if not (name == "body" and _is_for_types(node)):
                    yield from walk(getattr(node, name, ()), inner, later)

    return walk(ast.parse(source).body, (), True)


def _never_runs(node: ast.stmt) -> bool:
    match node:
        case ast.ClassDef():
            return any(ast.unparse(base).partition("[")[0] in ("Protocol", "TypedDict") for base in node.bases)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)
    return ast.unparse(node).startswith(UNREACHABLE)


def _is_for_types(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING")) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name == "__all__" or ast.unparse(value).startswith(OF_TYPES)
        case ast.AnnAssign(annotation=annotation, value=value):
            return value is None or ast.unparse(annotation) == "TypeAlias"
    return False


def changes(place: Place) -> list[str]:
    """The source of every mutant of this statement."""
    if isinstance(place.statement, (ast.ClassDef, ast.Match, ast.Try, ast.TryStar)):
        return []
    found: list[str] = []
    for changed in _variants(_header(place.statement), place.at_import):
        try:
            text = text_of(ast.fix_missing_locations(changed)) if isinstance(changed, ast.stmt) else ""
            same = not text or text_of(parse(text)) in (place.original, *found)
        except (SyntaxError, ValueError):  # this Python cannot write every f-string
            continue
        if not same:
            found.append(text)
    return found


def _variants(node: ast.AST, at_import: bool) -> Iterator[ast.AST]:
    """Copies of *node* with one change in each, its own or a child's."""
    yield from _own(node)
    if isinstance(node, (ast.JoinedStr, ast.Raise)) or _is_log(node) or (at_import and isinstance(node, ast.Subscript)):
        return
    for name, value in ast.iter_fields(node):
        if name in NOT_RUN or (isinstance(node, ast.stmt) and name in BLOCKS):
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, ast.expr_context):
                continue
            if at_import and isinstance(child, ast.BinOp) and isinstance(child.op, ast.BitOr):
                continue  # a union of types
            for changed in _variants(child, at_import):
                whole = [*value[:index], changed, *value[index + 1 :]] if isinstance(value, list) else changed
                yield _with(node, name, whole)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    yield from _of_expression(node)
    yield from _of_statement(node)
    match node:  # negated conditions; of two branches that is to swap them
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not _negates(test):
            yield _with(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[test]) if not _negates(test):
            yield _with(node, "ifs", [ast.UnaryOp(ast.Not(), test)])


def _of_expression(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=operators):
            for index, operator in enumerate(operators):
                for other in COMPARISONS[type(operator)]:
                    yield _with(node, "ops", [*operators[:index], other(), *operators[index + 1 :]])
        case ast.BoolOp(op=bool_operator):
            yield _with(node, "op", ast.Or() if isinstance(bool_operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in ARITHMETIC:
            yield _with(node, "op", ARITHMETIC[type(operator)]())
        case ast.Constant(value=value):
            yield from (ast.Constant(other) for other in _other_constants(value))
        case ast.JoinedStr() if " " not in ast.unparse(node)[2:]:
            yield ast.Constant("")


def _of_statement(node: ast.AST) -> Iterator[ast.stmt]:
    match node:
        case ast.Return(value=None) | ast.Raise() | ast.Delete() | ast.Expr(value=ast.Call() | ast.Await()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Return():
            yield ast.Return(ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def _negates(test: ast.expr) -> bool:
    return isinstance(test, (ast.Compare, ast.Constant)) or (
        isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    )


def _other_constants(value: object) -> list[str | bytes | bool | int | float]:
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1, value - 1]
        case str() if value and " " not in value:  # with a space it is a text for people
            return [""]
        case bytes() if value:
            return [b""]
    return []


def _is_log(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("_log.", "log.", "logger.", "_logger."))


def _with(node: ast.AST, name: str, value: object) -> ast.AST:
    changed = copy.copy(node)
    setattr(changed, name, value)
    return changed


def numbered(source: str) -> dict[tuple[str, str, int], Place]:
    """The statements by qualified name, source, and occurrence among their equals."""
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[tuple[str, str, int], Place] = {}
    for place in places(source):
        key = place.qualname, place.original
        found[*key, seen[key]] = place
        seen[key] += 1
    return found


def locate(mutants: Iterable[Mutant], sources: Mapping[str, str]) -> dict[int, tuple[str, Place]]:
    """File and statement of each mutant that is there. One whose file is not its own any more may be in another."""
    index = {file: numbered(source) for file, source in sources.items()}
    found: dict[int, tuple[str, Place]] = {}
    for mutant in mutants:
        key = mutant.qualname, mutant.original, mutant.occurrence
        files = [mutant.file] if key in index.get(mutant.file, ()) else [file for file in index if key in index[file]]
        if len(files) == 1:
            found[mutant.id] = files[0], index[files[0]][key]
    return found


def draw(sources: Mapping[str, str], count: int, seed: int) -> list[Mutant]:
    """*count* mutants, of each package as many as it has lines for, of no statement two."""
    rng = random.Random(seed)
    lines: Counter[str] = Counter()
    options: dict[str, list[tuple[str, tuple[str, str, int], int, list[str]]]] = {}
    for file, source in sorted(sources.items()):
        lines[package_of(file)] += source.count("\n")
        for key, place in numbered(source).items():
            texts = changes(place)
            if texts and not (REMOVED.issuperset(texts) and rng.random() < 0.5):  # else every third returns None
                options.setdefault(package_of(file), []).append((file, key, place.statement.lineno, texts))
    drawn: list[tuple[float, Mutant]] = []
    for package, share in shares(lines, count).items():
        chosen = rng.sample(options[package], share)
        for nth, (file, (qualname, original, occurrence), line, texts) in enumerate(chosen):
            mutant = Mutant(0, file, qualname, line, original, occurrence, rng.choice(texts))
            drawn.append(((nth + rng.random()) / share, mutant))
    drawn.sort(key=lambda placed: placed[0])
    return [replace(mutant, id=number) for number, (_, mutant) in enumerate(drawn, 1)]


def shares(lines: Mapping[str, int], count: int) -> dict[str, int]:
    """*count*, divided by lines; the largest remainders are rounded up."""
    exact = {package: count * number / sum(lines.values()) for package, number in lines.items()}
    found = {package: int(share) for package, share in exact.items()}
    for package in sorted(exact, key=lambda name: found[name] - exact[name])[: count - sum(found.values())]:
        found[package] += 1
    return found


def read_sources() -> dict[str, str]:
    files = (path for path in SOURCE.rglob("*.py") if path.name != "windows.py")
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in files}


def read_drawn() -> list[Mutant]:
    return [Mutant(**entry) for entry in json.loads(DRAWN.read_text(encoding="utf-8"))]


def main() -> None:
    proofs = {replace(mutant, equivalent=None): mutant.equivalent for mutant in read_drawn()} if DRAWN.exists() else {}
    drawn = [replace(mutant, equivalent=proofs.get(mutant)) for mutant in draw(read_sources(), COUNT, SEED)]
    text = json.dumps([asdict(mutant) for mutant in drawn], indent=1, ensure_ascii=False)
    DRAWN.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
