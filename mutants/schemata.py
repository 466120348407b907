"""The package with all mutants in it, each behind a question whether it is the active one."""

from __future__ import annotations

import ast
import copy
import marshal
from collections.abc import Iterable, Mapping
from pathlib import Path

from mutants.draw import SOURCE, Mutant, Place, locate, numbered, parse


def write_code(mutants: Iterable[Mutant], sources: Mapping[str, str], folder: Path) -> dict[int, Place]:
    """Compile every module that has mutants into *folder*. Gives the places of those that were found."""
    mutants = list(mutants)
    found = locate(mutants, sources)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for file in {file for file, _ in found.values()}:
        here = [mutant for mutant in mutants if mutant.id in found and found[mutant.id][0] == file]
        name = ".".join(("mcp_host", *Path(file).with_suffix("").parts)).removesuffix(".__init__")
        code = compile(instrumented(sources[file], here), str(SOURCE / file), "exec", dont_inherit=True)
        (folder / name).write_bytes(marshal.dumps(code))
    return {number: place for number, (_, place) in found.items()}


def instrumented(source: str, mutants: Iterable[Mutant]) -> ast.Module:
    """The module with these *mutants*.

    Of those that run when the module is imported, every function of the module is a place, too:
    the tests that call one are those that may notice.
    """
    tree = ast.parse(source)
    index = {(key[0], key[1], key[2]): place for key, place in numbered(source).items()}
    by_line: dict[tuple[int, int, type[ast.stmt]], Mutant] = {}
    at_import: list[int] = []
    for mutant in mutants:
        place = index.get((mutant.qualname, mutant.original, mutant.occurrence))
        if place is not None:
            by_line[_position(place.statement)] = mutant
            at_import += [mutant.id] * place.at_import
    changed = _Schemata(by_line, at_import).visit(tree)
    assert isinstance(changed, ast.Module)
    return ast.fix_missing_locations(changed)


def _position(node: ast.stmt) -> tuple[int, int, type[ast.stmt]]:
    return node.lineno, node.col_offset, type(node)


class _Schemata(ast.NodeTransformer):
    def __init__(self, by_line: dict[tuple[int, int, type[ast.stmt]], Mutant], at_import: list[int]) -> None:
        self._by_line = by_line
        self._at_import = at_import

    def visit(self, node: ast.AST) -> ast.AST:
        node = self.generic_visit(node)
        if not isinstance(node, ast.stmt):
            return node
        mutant = self._by_line.get(_position(node))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = 1 if ast.get_docstring(node) is not None else 0
            probes = [ast.copy_location(ast.Expr(_is_reached(number)), node) for number in self._at_import]
            node.body[first:first] = probes
        if mutant is None:
            return node
        mutated = parse(mutant.mutated)
        for part in ast.walk(mutated):
            ast.copy_location(part, node)
        if hasattr(node, "body"):
            _choose(node, mutated, mutant.id)
            return node
        return ast.copy_location(ast.If(_is_reached(mutant.id), [mutated], [node]), node)


def _is_reached(number: int) -> ast.Call:
    return ast.Call(ast.Name("mutant_is_reached", ast.Load()), [ast.Constant(number)], [])


def _choose(node: ast.AST, mutated: ast.AST, number: int) -> None:
    """Put the one expression that differs in a header behind the question."""
    for name in ("test", "iter", "items", "context_expr", "args", "defaults", "kw_defaults"):
        ours, theirs = getattr(node, name, None), getattr(mutated, name, None)
        pairs = (
            zip(ours, theirs, strict=True) if isinstance(ours, list) and isinstance(theirs, list) else [(ours, theirs)]
        )
        for index, (one, other) in enumerate(pairs):
            if not isinstance(one, ast.AST) or not isinstance(other, ast.AST) or ast.dump(one) == ast.dump(other):
                continue
            if not isinstance(one, ast.expr) or not isinstance(other, ast.expr):
                _choose(one, other, number)
                continue
            either = ast.copy_location(ast.IfExp(_is_reached(number), other, copy.copy(one)), one)
            if isinstance(ours, list):
                ours[index] = either
            else:
                setattr(node, name, either)
