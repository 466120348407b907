"""Reads names, signatures and docstrings from the source of the package, as they are written, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import TypeAlias

SOURCE = Path(__file__).resolve().parent.parent / "src"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Named:
    """A name and where it is defined. *doc* is its docstring, or the string beneath an assignment."""

    name: str
    module: str
    node: ast.ClassDef | Function | ast.Assign | ast.AnnAssign
    doc: str


@cache
def tree(module: str) -> ast.Module:
    """The syntax of a module, by its dotted name."""
    path = SOURCE.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def exported(module: str) -> list[str]:
    """The names in ``__all__``; without one, those of the modules that are imported with ``*`` and every public class."""
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    own = [n.name for n in tree(module).body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]
    return [name for origin in star_imports(module) for name in exported(origin)] + own


def star_imports(module: str) -> list[str]:
    """The modules that *module* imports with ``*``."""
    imports = [node for node, _ in statements(tree(module).body) if isinstance(node, ast.ImportFrom)]
    return [node.module for node in imports if node.module and node.names[0].name == "*"]


def find(module: str, name: str) -> Named:
    """The module that defines *name*, which *module* imports, perhaps through others.

    Raises:
        LookupError: It has no such name.
    """
    for node, doc in statements(tree(module).body):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                return Named(name, module, node, ast.get_docstring(node) or "")
            case ast.Assign() | ast.AnnAssign() if name in targets(node):
                return Named(name, module, node, doc)
            case ast.ImportFrom(module=str(origin)) if name in [alias.asname or alias.name for alias in node.names]:
                return find(origin, next(a.name for a in node.names if (a.asname or a.name) == name))
    for origin in star_imports(module):
        if name in exported(origin):
            return find(origin, name)
    raise LookupError(f"{module} has no {name}")


def statements(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a body and of the conditions in it, each with the string below it, if any."""
    for index, node in enumerate(body):
        after = body[index + 1] if index + 1 < len(body) else None
        doc = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            doc = cleandoc(after.value.value)
        yield node, doc
        if isinstance(node, ast.If):
            yield from statements(node.body)


def targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """What an assignment names, ``self.x`` included."""
    aims = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [ast.unparse(aim) for aim in aims]


def bases(named: Named) -> list[Named]:
    """The class and its bases in this package, nearest first."""
    assert isinstance(named.node, ast.ClassDef), f"{named.name} is no class"
    found = [named]
    for base in named.node.bases:
        if not isinstance(base, ast.Name):
            continue
        try:
            parent = find(named.module, base.id)
        except (LookupError, FileNotFoundError):
            continue  # a class of another package
        if isinstance(parent.node, ast.ClassDef):
            found += [other for other in bases(parent) if other not in found]
    return found


def decorators(node: ast.ClassDef | Function) -> list[str]:
    return [ast.unparse(decorator) for decorator in node.decorator_list]


def is_dataclass(node: ast.ClassDef) -> bool:
    return any(decorator.startswith("dataclass") for decorator in decorators(node))


def members(named: Named) -> dict[str, list[tuple[ast.stmt, str]]]:
    """The members of a class and its bases, by name and in order: the nearest definition, with its overloads."""
    found: dict[str, list[tuple[ast.stmt, str]]] = {}
    for cls in reversed(bases(named)):
        assert isinstance(cls.node, ast.ClassDef)
        own: dict[str, list[tuple[ast.stmt, str]]] = {}
        for node, doc in statements(cls.node.body):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    own.setdefault(node.name, []).append((node, ast.get_docstring(node) or ""))
                case ast.AnnAssign(target=ast.Name(id=name)):
                    own.setdefault(name, []).append((node, doc))
        found |= own
    return found


def attributes(named: Named) -> dict[str, str]:
    """The public attributes that ``__init__`` sets with a string below them: name and annotation, to docstring."""
    found: dict[str, str] = {}
    for node, _ in [pair for name, pairs in members(named).items() if name == "__init__" for pair in pairs]:
        assert isinstance(node, ast.FunctionDef)
        for statement, doc in statements(node.body):
            if isinstance(statement, ast.AnnAssign) and doc:
                name = ast.unparse(statement.target).removeprefix("self.")
                found[f"{name}: {ast.unparse(statement.annotation)}"] = doc
    return found


def signature(node: Function, module: str) -> list[str]:
    """The parameters without self, as they are written; a constant of *module* as its value."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    parts = [_parameter(arg, default, module) for arg, default in zip(plain, defaults, strict=True)]
    if args.posonlyargs:
        parts.insert(len(args.posonlyargs), "/")
    if args.vararg:
        parts.append(f"*{_parameter(args.vararg, None, module)}")
    elif args.kwonlyargs:
        parts.append("*")
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if not arg.arg.startswith("_"):
            parts.append(_parameter(arg, default, module))
    if args.kwarg:
        parts.append(f"**{_parameter(args.kwarg, None, module)}")
    return [part for part in parts if part not in ("self", "cls")]


def _parameter(arg: ast.arg, default: ast.expr | None, module: str) -> str:
    annotation = "" if arg.annotation is None else f": {ast.unparse(arg.annotation)}"
    if default is None:
        return arg.arg + annotation
    return f"{arg.arg}{annotation}{' = ' if annotation else '='}{written(module, default)}"


def written(module: str, default: ast.expr) -> str:
    """A default as it is written; a name as its value."""
    if not isinstance(default, ast.Name):
        return ast.unparse(default)
    try:
        node = find(module, default.id).node
    except FileNotFoundError:
        return default.id  # of another package
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        return ast.unparse(node.value)
    return default.id


def names_in_signatures(node: ast.ClassDef) -> list[str]:
    """The names in the annotations of a class's fields and public methods, in order; quoted ones, too."""
    annotations: list[ast.expr | None] = []
    for statement, _ in statements(node.body):
        match statement:
            case ast.AnnAssign(annotation=annotation):
                annotations.append(annotation)
            case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
                if not name.startswith("_") or name in ("__init__", "__call__"):
                    annotations += [arg.annotation for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    names = [
        part.id
        for annotation in annotations
        if annotation
        for part in ast.walk(annotation)
        if isinstance(part, ast.Name)
    ]
    return list(dict.fromkeys(names))
