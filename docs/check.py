"""`make docs` checks the pages: links and names exist, snippets run, generated pages are up to date."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pictures
import reference
from pages import Page, read
from source import SOURCE, statements, targets

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = SOURCE / "mcp_host"

FILE = re.compile(r"[\w.-]*/[\w./-]+|[\w-]+\.(?:py|md|toml|lock|json|mjs|txt)")
MEMBER = re.compile(r"([A-Z]\w+)\.(\w+)(?:\(.*\))?")
MAKE = re.compile(r"\bmake ([a-z]+)")
TEST = re.compile(r"(\S+\.py)::(\S+)")
ROW = re.compile(r"^\| (?!question |threat )([^|]+) \|", re.MULTILINE)
SHOWN = re.compile(r"^- (.+)\n  - until 2025-11-25: `tests/.+(?:\n    .+)*\n  - 2026-07-28: `tests/", re.MULTILINE)
TESTED = re.compile(r"^- (.+?): `tests/\S+::", re.MULTILINE)
SHELL = frozenset({"sh", "console"})
RUN = frozenset({"python", "console"})


def main() -> int:
    """Check every page; print each problem with its place."""
    pages = [read(path) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])]
    problems = [
        *stale(),
        *stale_pictures(),
        *untrue_layers(),
        *untrue_environment(),
        *half_shown_rows(),
        *unshown_threats(),
    ]
    for page in pages:
        problems += [*dead_links(page), *unknown_targets(page)]
        if page.path.name not in reference.PAGES:
            problems += [*unknown_files(page), *unknown_members(page), *unknown_tests(page)]
    for page in pages:
        if any(block.language in RUN for block in page.blocks):
            problems += failing_snippets(page)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"docs: {len(pages)} pages, {len(problems)} problems")
    return 1 if problems else 0


def stale() -> Iterator[str]:
    """Generated pages that are out of date."""
    for name, write in {**reference.PAGES, **reference.PARTS}.items():
        path = reference.HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != write():
            yield f"docs/{name}: not what the source says; run .venv/bin/python docs/reference.py"


def stale_pictures() -> Iterator[str]:
    """Pictures that are not what the examples show, or that no example shows."""
    drawn = dict(pictures.pictures())
    there = {path.name: path.read_text(encoding="utf-8") for path in pictures.FOLDER.glob("*.svg")}
    for name in sorted(drawn.keys() | there.keys()):
        if drawn.get(name) != there.get(name):
            yield f"docs/pictures/{name}: not what the examples show; run .venv/bin/python docs/pictures.py"


def untrue_layers() -> Iterator[str]:
    """Rows of the table of layers that differ from the test of the architecture."""
    sys.path.insert(0, str(ROOT))
    from tests.test_architecture import MAY_IMPORT

    page = (reference.HERE / "how-it-works.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page.partition("## One call")[0], re.MULTILINE))
    said = {package: set(re.findall(r"`(\w+)`", others)) for package, others in rows.items()}
    for package in sorted({*said, *MAY_IMPORT}):
        if said.get(package) != MAY_IMPORT.get(package):
            yield f"docs/how-it-works.md: the layers of {package} are not those of tests/test_architecture.py"


def untrue_environment() -> Iterator[str]:
    """Differences between the variables that a child inherits and those on the page on security."""
    page = (reference.HERE / "security.md").read_text(encoding="utf-8")
    section = page.partition("## The environment of a child")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([A-Z_]+)`", section))
    inherited = set(inherited_names())
    if named != inherited:
        yield f"docs/security.md: what a child inherits differs in {', '.join(sorted(named ^ inherited))}"


def half_shown_rows() -> Iterator[str]:
    """Rows about the eras without a test for each era, or tests without a row."""
    page = (reference.HERE / "how-it-works.md").read_text(encoding="utf-8")
    for question in half_shown(page.partition("### What differs")[2].partition("\n## ")[0]):
        yield f"docs/how-it-works.md: {question!r} has no row, or no test in one of the eras"


def half_shown(section: str) -> list[str]:
    """The questions that are only in the table, or only in the list of tests below it."""
    return sorted({*ROW.findall(section)} ^ {*SHOWN.findall(section)})


def unshown_threats() -> Iterator[str]:
    """Threats on the page on security without a test, or tests without a threat."""
    for threat in unshown((reference.HERE / "security.md").read_text(encoding="utf-8")):
        yield f"docs/security.md: {threat!r} has no row, or no test"


def unshown(page: str) -> list[str]:
    """The threats that are only in the tables, or only in the list of tests."""
    tables = page.partition("\n## Threats\n")[2].partition("\n## ")[0]
    return sorted({*ROW.findall(tables)} ^ {*TESTED.findall(page.partition("\n## Tests\n")[2])})


def inherited_names() -> Iterator[str]:
    """What a child inherits, on Windows and elsewhere: from both branches of the source."""
    for node in ast.walk(ast.parse((PACKAGE / "transports" / "_process" / "start.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and targets(node) == ["INHERITED"]:
            yield from (str(part.value) for part in ast.walk(node.value) if isinstance(part, ast.Constant))


def dead_links(page: Page) -> Iterator[str]:
    """Links to missing files and headings."""
    for line, target in page.links():
        if "://" in target:
            continue  # the network is no part of the gate
        file, _, anchor = target.partition("#")
        path = (page.path.parent / file).resolve() if file else page.path
        if not path.exists():
            yield f"{place(page, line)}: there is no {target}"
        elif anchor and path.suffix == ".md" and anchor not in read(path).anchors:
            yield f"{place(page, line)}: there is no heading for {target}"


def unknown_targets(page: Page) -> Iterator[str]:
    """`make` targets that the Makefile does not have."""
    there = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = [(block.line, block.text) for block in page.blocks if block.language in SHELL]
    for line, text in [*page.words(), *shown]:
        yield from (
            f"{place(page, line)}: there is no `make {name}`" for name in MAKE.findall(text) if name not in there
        )


def unknown_files(page: Page) -> Iterator[str]:
    """Files in backticks that do not exist: in the checkout, in the package or among the page's own blocks."""
    made = {block.name for block in page.blocks}
    for line, word in page.words():
        if not FILE.fullmatch(word) or word in made or word in NO_FILES:
            continue
        if not any((base / word).exists() for base in (ROOT, PACKAGE, page.path.parent)):
            yield f"{place(page, line)}: there is no file {word}"


NO_FILES = frozenset({"sampling/createMessage", "elicitation/create", "roots/list", "tools/list", "tools/call"}) | {
    *("resources/subscribe", "logging/setLevel", "prompts/get", "server/discover", "subscriptions/listen"),
    *("notifications/cancelled", "notifications/initialized", "notifications/progress", "application/json"),
    *("text/event-stream", "resources/read", "completion/complete"),
    *("/back", "/skip", "/view", "/decline", "/cancel", "/clear", "/quit", "/servers", "/tools"),
    "mcp.json",  # of a user
}
"""Methods of the protocol, media types and what is typed into a form: they look like paths."""


def unknown_tests(page: Page) -> Iterator[str]:
    """``tests/file.py::test_name`` in backticks without such a function."""
    for line, word in page.words():
        found = TEST.fullmatch(word)
        if found and found[2] not in tests_in(ROOT / found[1]):
            yield f"{place(page, line)}: there is no test {word}"


@cache
def tests_in(file: Path) -> frozenset[str]:
    """The names of the tests in *file*, as pytest collects them; empty if there is no such file."""
    if not file.is_file():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = (node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, functions))
    return frozenset(name for name in names if name.startswith("test_"))


def unknown_members(page: Page) -> Iterator[str]:
    """``Class.member`` in backticks where the class has no such member."""
    for line, word in page.words():
        found = MEMBER.fullmatch(word)
        if found and (has := classes().get(found[1])) is not None and found[2] not in has:
            yield f"{place(page, line)}: {found[1]} has no {found[2]}"


DEEPEST = 4  # classes that inherit from each other


@cache
def classes() -> dict[str, set[str]]:
    """Every class of the package with its members, those of its bases and instances included."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                own.setdefault(node.name, set()).update(defined(node))
                bases.setdefault(node.name, set()).update(ast.unparse(base) for base in node.bases)
    for _ in range(DEEPEST):
        for name, its in bases.items():
            own[name] = own[name].union(*(own.get(base, set()) for base in its))
    return own


def defined(cls: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(cls):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
    for statement, _ in statements([node for node in ast.walk(cls) if isinstance(node, ast.stmt)]):
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            yield from (name.removeprefix("self.") for name in targets(statement))


def failing_snippets(page: Page) -> list[str]:
    """Failures of a page's snippets, which run in a process without a terminal."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("snippets.py")), str(page.path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # else `ask_in_terminal` would ask the person who runs this
    )
    if done.returncode:
        return [done.stderr.strip() or f"{page.path}: its snippets ended with code {done.returncode}"]
    return []


def place(page: Page, line: int) -> str:
    path = page.path.relative_to(ROOT) if page.path.is_relative_to(ROOT) else page.path
    return f"{path}:{line}"


if __name__ == "__main__":
    sys.exit(main())
