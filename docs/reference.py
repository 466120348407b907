"""Write docs/reference.md and docs/limits.md from the docstrings, and docs/faults.md: ``python docs/reference.py``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent

import faults
import matrix
import source
from source import Function, Named

HERE = Path(__file__).resolve().parent
WIDTH = 100  # columns of a signature; past it each parameter has its own line
NOT_SHOWN = frozenset({"overload", "reads_only"})  # decorators that tell a caller nothing

GENERATED = "<!-- Written by docs/reference.py from the docstrings. Change those, then run it again. -->"

INTRODUCTION = """\
# Reference

Every public name, with its docstring.
Other names may change without notice.

- [`mcp_host`](#mcp_host): what applications use
- [`mcp_host.auth`](#mcp_hostauth): log in
- [`mcp_host.config`](#mcp_hostconfig): the servers in a user's files
- [`mcp_host.config.registry`](#mcp_hostconfigregistry): servers of a registry
- [`mcp_host.errors`](#mcp_hosterrors): every exception
- [`mcp_host.group`](#mcp_hostgroup): several servers
- [`mcp_host.middleware`](#mcp_hostmiddleware): functions around requests
- [`mcp_host.providers`](#mcp_hostproviders): real models
- [`mcp_host.sampling`](#mcp_hostsampling): sampling without a client
- [`mcp_host.sampling.structured`](#mcp_hostsamplingstructured): the host's model, for authors of servers
- [`mcp_host.telemetry`](#mcp_hosttelemetry): OpenTelemetry
- [`mcp_host.proxy`](#mcp_hostproxy): a server for hosts, in front of another one
- [`mcp_host.doctor`](#mcp_hostdoctor): a check-up for hosts
- [`mcp_host.testing`](#mcp_hosttesting): servers, peers and models for tests
- [`mcp_host.types`](#mcp_hosttypes): messages and content
- [Limits and their defaults](limits.md)
"""

MODULES: Mapping[str, str] = {
    "mcp_host": "",
    "mcp_host.auth": "",
    "mcp_host.config": "",
    "mcp_host.config.registry": "",
    "mcp_host.doctor": "",
    "mcp_host.errors": "",
    "mcp_host.group": "",
    "mcp_host.middleware": "",
    "mcp_host.providers": "",
    "mcp_host.proxy": "",
    "mcp_host.sampling": "The names of `mcp_host` that concern sampling are here, too.",
    "mcp_host.sampling.structured": "",
    "mcp_host.telemetry": "",
    "mcp_host.testing": "",
}

TYPES = """\
The messages and contents of all revisions, under the names of the official schema.
Each is frozen and keeps unknown fields (`model_extra`).
`from_wire()` takes decoded JSON and raises `ProtocolError`; `to_wire()` returns JSON values, without fields that were not given.
Python's `max_tokens` is `maxTokens` in JSON, and `meta` is `_meta`.
A date is the revision that introduced a class or a field, if it is later than 2024-11-05.
"""

LIMITS = """\
# Limits

Everything that a server controls is limited.
Times are in seconds, sizes in bytes.
"""


def reference() -> str:
    """The whole page."""
    parts = [INTRODUCTION, GENERATED]
    told: set[str] = set()
    for module, remark in MODULES.items():
        parts += [f"## `{module}`", render(ast.get_docstring(source.tree(module)) or ""), remark]
        for name in sorted(source.exported(module), key=str.lower):
            named = None if name.startswith("__") else source.find(module, name)
            if named is not None and name not in told:
                told.add(name)
                parts += entry(named)
    parts += ["## `mcp_host.types`", TYPES, *types()]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def limits() -> str:
    """The page of limits, with the defaults as they are in the source."""
    parts = [LIMITS, GENERATED]
    for module, name, use in (
        ("mcp_host.limits", "Limits", "`Client(transport, limits=Limits(...))`"),
        ("mcp_host.sampling.limits", "SamplingLimits", "`Sampling(..., limits=SamplingLimits(...))`"),
        ("mcp_host.sampling.limits", "OwnTools", "`Client(..., run_own_tools=OwnTools(...))`"),
    ):
        named = source.find(module, name)
        rows = ["| limit | default | |", "|---|---|---|", *limit_rows(named)]
        parts += [f"## `{name}`", f"{use}. {one_line(named.doc)}", "\n".join(rows)]
    parts += ["## Fixed", FIXED, "\n".join(["| where | constant | value | |", "|---|---|---|---|", *fixed_rows()])]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


FIXED = """\
Further bounds in the code. These cannot be configured.
"""


def limit_rows(named: Named) -> Iterator[str]:
    for name, [(node, doc), *_] in source.members(named).items():
        if isinstance(node, ast.AnnAssign):
            assert node.value is not None, f"{name} has a default"
            yield f"| `{name}` | {value(node.value)} | {one_line(doc)} |"


def value(node: ast.expr) -> str:
    """A number as people write it: ``64 * MiB`` as 64 MiB."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Name):
        return f"{ast.unparse(node.left)} {node.right.id}"
    if isinstance(node, ast.Call):  # of a unit: ``in_bytes(64 * MiB)``
        return value(node.args[0])
    number: object = ast.literal_eval(node)
    return "none" if number is None else f"{number:g}" if isinstance(number, float) else f"{number:,}"


def fixed_rows() -> Iterator[str]:
    """Every number in capitals with its own comment."""
    for file in sorted((source.SOURCE / "mcp_host").rglob("*.py")):
        place = file.relative_to(source.SOURCE / "mcp_host")
        if place.parts[0] not in (
            "auth",
            "client",
            "concurrency",
            "elicitation",
            "handlers.py",
            "json_schema",
            "protocol",
            "transports",
        ):
            continue
        pure = place.parts[0] in ("elicitation", "json_schema", "protocol")  # other numbers there are no bounds
        name = "MAX_[A-Z_]+" if pure else "[A-Z][A-Z_]+"
        for line in file.read_text(encoding="utf-8").splitlines():
            if found := re.fullmatch(rf"({name}) = ([\d_.]+|\d+ ?\*\*? ?\w+)  # (.*)", line):
                yield f"| `{place.as_posix()}` | `{found[1]}` | {found[2]} | {found[3]} |"


def entry(named: Named) -> Iterator[str]:
    """The entry of one name."""
    yield f"### {named.name}"
    match named.node:
        case ast.ClassDef():
            yield from class_entry(named, named.node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield signature_block([named.node], named.name, named.module)
            yield render(named.doc)
        case ast.Assign(value=written) | ast.AnnAssign(value=ast.expr() as written):
            yield python(f"{named.name} = {alias(written)}")
            yield render(named.doc)


def alias(written: ast.expr) -> str:
    """The value of an alias, without quotes and annotations."""
    if isinstance(written, ast.Subscript) and ast.unparse(written.value) == "Annotated":
        assert isinstance(written.slice, ast.Tuple)
        return ast.unparse(written.slice.elts[0])
    if isinstance(written, ast.Constant) and isinstance(written.value, str):
        return written.value
    return ast.unparse(written)


def class_entry(named: Named, node: ast.ClassDef) -> Iterator[str]:
    if named.module.endswith("errors"):
        parents = [base for base in source.bases(named)[1:2] if base.name != "Exception"]
        yield "".join(f"Base: [`{base.name}`](#{base.name.lower()})." for base in parents)
    made_by_users = (named.module != ERRORS and named.name not in MADE_FOR_USERS) or named.name in RAISED_BY_HANDLERS
    if made_by_users and (constructor := constructor_of(named, node)):
        yield python(call(named.name, constructor))
    yield render(named.doc)
    yield from [render(base.doc) for base in source.bases(named)[1:] if not is_public(base) and has_public(base)]
    if named.name.endswith("Limits"):
        yield f"[What each of them bounds](limits.md#{named.name.lower()})"
    if fields := list(field_lines(named, node)):
        yield "\n".join(fields)
    yield from methods(named)
    if spelled := "\n".join(spelled_out(named)):
        yield f"In these signatures:\n\n{spelled}"


MADE_FOR_USERS = frozenset({"Context", "SamplingSession"})
"""Classes that only the package creates; their constructors may change."""

ERRORS = "mcp_host.errors"
RAISED_BY_HANDLERS = frozenset({"InputRefused"})
"""Errors that users create. The others are only raised by the package."""


def is_public(named: Named) -> bool:
    """Whether the reference has an entry for this class."""
    doors = [module for module in (*MODULES, "mcp_host.types") if named.name in source.exported(module)]
    return any(source.find(module, named.name) == named for module in doors)


def has_public(named: Named) -> bool:
    return any(not name.startswith("_") for name in source.members(named))


def spelled_out(named: Named) -> Iterator[str]:
    """The aliases in a class's signatures that are nowhere else in the reference."""
    told: set[str] = set()
    for base in source.bases(named):
        assert isinstance(base.node, ast.ClassDef)
        for name in source.names_in_signatures(base.node):
            try:
                found = source.find(base.module, name)
            except (LookupError, FileNotFoundError):
                continue  # of another module
            if isinstance(found.node, ast.AnnAssign) and name not in told and not is_public(found):
                told.add(name)
                assert found.node.value is not None
                yield bullet(f"{name} = {alias(found.node.value)}", found.doc)


def constructor_of(named: Named, node: ast.ClassDef) -> list[str]:
    """The parameters of the class, from the source."""
    members = source.members(named)
    for init, _ in members.get("__init__", []):
        assert isinstance(init, ast.FunctionDef)
        return source.signature(init, named.module)
    if not source.is_dataclass(node):
        return []
    shown = [pairs for name, pairs in members.items() if not name.startswith("_")]
    fields = [field for pairs in shown for field, _ in pairs if isinstance(field, ast.AnnAssign)]
    all_by_name = any("kw_only=True" in decorator for decorator in source.decorators(node))
    by_name = [field for field in fields if all_by_name or (field.value and "kw_only=True" in ast.unparse(field.value))]
    plain = [field_parameter(named.module, field) for field in fields if field not in by_name]
    return plain + ["*"] * bool(by_name) + [field_parameter(named.module, field) for field in by_name]


def field_parameter(module: str, node: ast.AnnAssign) -> str:
    name, annotation = ast.unparse(node.target), ast.unparse(node.annotation)
    if node.value is None:
        return f"{name}: {annotation}"
    default = ast.unparse(node.value)
    if isinstance(node.value, ast.Call) and node.value.args:  # a limit: ``in_seconds(30.0)``
        default = ast.unparse(node.value.args[0])
    elif isinstance(node.value, ast.Call):
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.value.keywords}
        if not {"default", "default_factory"} & keywords.keys():
            return f"{name}: {annotation}"
        default = keywords.get("default") or f"{keywords['default_factory']}()"
    elif isinstance(node.value, ast.Name):
        default = source.written(module, node.value)
    return f"{name}: {annotation} = {default}"


def field_lines(named: Named, node: ast.ClassDef) -> Iterator[str]:
    """Properties, documented fields and attributes, a line each."""
    for name, pairs in source.members(named).items():
        found, doc = pairs[0]
        if name.startswith("_"):
            continue
        if isinstance(found, ast.FunctionDef) and "property" in " ".join(source.decorators(found)):
            assert found.returns is not None, f"{name} is typed"
            yield bullet(f"{name}: {ast.unparse(found.returns)}", doc)
        elif isinstance(found, ast.AnnAssign) and doc and not named.name.endswith("Limits"):
            yield bullet(f"{name}: {ast.unparse(found.annotation)}", doc)
    for name, doc in source.attributes(named).items():
        yield bullet(name, doc)


def bullet(spelling: str, doc: str) -> str:
    return f"- `{spelling}`" + (f": {one_line(doc)}" if doc else "")


def methods(named: Named) -> Iterator[str]:
    if named.module == ERRORS:
        return
    for name, pairs in source.members(named).items():
        nodes = [node for node, _ in pairs if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        if not nodes or (name.startswith("_") and name != "__call__"):
            continue
        if any("property" in decorator for node in nodes for decorator in source.decorators(node)):
            continue
        overloads = [node for node in nodes if "overload" in source.decorators(node)]
        yield f"#### `{named.name}.{name}`"
        yield signature_block(overloads or nodes, name, home(named, nodes[0]))
        yield render(pairs[-1][1])


def home(named: Named, member: Function) -> str:
    """The module of the class that defines a method: *named* or one of its bases."""
    return next(base.module for base in source.bases(named) if member in ast.walk(base.node))


def signature_block(nodes: list[Function], name: str, module: str) -> str:
    lines = []
    for node in nodes:
        keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
        decorated = [f"@{decorator}" for decorator in source.decorators(node) if decorator not in NOT_SHOWN]
        parameters = source.signature(node, module)
        lines += [*decorated, f"{call(f'{keyword} {name}', parameters, len(returns))}{returns}"]
    return python("\n".join(lines))


def call(name: str, parameters: list[str], room: int = 0) -> str:
    flat = f"{name}({', '.join(parameters)})"
    if len(flat) + room <= WIDTH:
        return flat
    return "\n".join([f"{name}(", *(f"    {parameter}," for parameter in parameters), ")"])


def python(code: str) -> str:
    return f"```py\n{code}\n```"


def one_line(doc: str) -> str:
    return " ".join(doc.split())


# Docstrings


def render(doc: str) -> str:
    """A docstring as Markdown: examples, drawings and the list of errors become blocks."""
    return "\n\n".join(RENDER.get(kind(part), str)(part) for part in re.split(r"\n\n(?! )|\n\n(?=    )", doc) if part)


def kind(part: str) -> str:
    if part.startswith(">>> "):
        return "example"
    if part.startswith("Raises:"):
        return "raises"
    return "drawing" if part.startswith("    ") else "text"


def example(part: str) -> str:
    return python("\n".join(line[4:] for line in part.splitlines()))


def drawing(part: str) -> str:
    return f"```text\n{dedent(part)}\n```"


def raises(part: str) -> str:
    """The Google style's list, as a list."""
    entries: list[str] = []
    for line in dedent(part.partition("\n")[2]).splitlines():
        if line.startswith(" "):
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line)
    return "\n".join(["Raises:", "", *(re.sub(r"^([\w, ]+):", r"- `\1`:", entry) for entry in entries)])


RENDER: Mapping[str, Callable[[str], str]] = {"example": example, "drawing": drawing, "raises": raises}


# Types


def types() -> Iterator[str]:
    module = "mcp_host.types"
    for name in sorted(source.exported(module), key=str.lower):
        named = source.find(module, name)
        if isinstance(named.node, ast.ClassDef):
            yield type_entry(named, named.node)
        elif isinstance(named.node, ast.Assign | ast.AnnAssign):
            assert named.node.value is not None
            yield f"**{name}** = `{alias(named.node.value)}`  \n{one_line(named.doc)}".strip()


def type_entry(named: Named, node: ast.ClassDef) -> str:
    """One class in a few lines: its name, first revision, docstring and fields."""
    ages = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
    age = ", ".join(f"{'from' if word == 'since' else 'until'} {date}" for word, date in ages.items())
    about = one_line(named.doc.partition("\n\n")[0])
    fields = [
        type_field(field)
        for pairs in source.members(named).values()
        for field, _ in pairs[:1]
        if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation)
    ]
    reads = [
        f"`{name}` reads: {one_line(doc)}"
        for name, pairs in source.members(named).items()
        for found, doc in pairs[:1]
        if isinstance(found, ast.FunctionDef) and "property" in source.decorators(found)
    ]
    head = f"**{named.name}**" + (f" ({age})" if age else "")
    return "  \n".join(filter(None, [f"{head}: {about}" if about else head, ", ".join(fields), *reads]))


def type_field(node: ast.AnnAssign) -> str:
    """``meta: Meta`` and the like, with a question mark if it may be absent."""
    annotation, age = node.annotation, ""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        annotation, *marks = annotation.slice.elts
        dates = [found[1].replace("_", "-") for mark in marks if (found := SINCE.fullmatch(ast.unparse(mark)))]
        age = "".join(f" ({date})" for date in dates)
    optional = "" if node.value is None else "?"
    spelled = ast.unparse(annotation).removesuffix(" | None").replace("Array[", "list[")
    return f"`{ast.unparse(node.target)}{optional}: {spelled}`{age}"


SINCE = re.compile(r"SINCE_(\w+)")


PAGES: Mapping[str, Callable[[], str]] = {"reference.md": reference, "limits.md": limits, "faults.md": faults.page}
"""Pages that are written here as a whole."""

PARTS: Mapping[str, Callable[[], str]] = {"providers.md": matrix.page}
"""Pages of which a part is written here."""

if __name__ == "__main__":
    for name, page in {**PAGES, **PARTS}.items():
        (HERE / name).write_text(page(), encoding="utf-8")
