"""Run the snippets of one page, as its readers would: ``python docs/snippets.py docs/how-to.md``.

    ```python                    run, with the names of given.py and those of the blocks before it
                                 under the same heading; `await` works, as in an async function
    ```python examples/x.py      not run: an excerpt of that file (tests run the file)
    ```python host.py            written to a file, for the commands on the same page
    ```console                   each line after "$ " is run; what it prints is compared
    ```console exits 2           the same for commands that fail with this exit code
    ```text                      right after a ``python`` block: its output

Other blocks are not run. "..." in an expected output matches anything.
"""

from __future__ import annotations

import ast
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext, redirect_stdout
from doctest import ELLIPSIS, OutputChecker
from inspect import CO_COROUTINE
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent, indent
from types import CodeType, FunctionType

import anyio
from given import given
from pages import Block, Page, read

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 60.0  # seconds for one snippet or command; the slowest takes two


class SnippetError(Exception):
    """A snippet does not print what the page shows."""


async def run_page(page: Page) -> int:
    """Run every snippet of *page* in a new directory, in order; return how many there were.

    Raises:
        SnippetError: The first one that fails, with its line.
    """
    count = 0
    with TemporaryDirectory() as directory, chdir(directory), own_programs_first(), models_of(page):
        os.symlink(ROOT / "examples", "examples")
        async with given() as names:
            section, scope = "", dict(names)
            for block, expected in with_output(page.blocks):
                if block.section != section:
                    section, scope = block.section, dict(names)
                try:
                    count += await run_block(block, expected, scope)
                except Exception as exc:
                    raise SnippetError(f"{page.path}:{block.line}: {type(exc).__name__}: {exc}") from exc
    return count


def models_of(page: Page) -> AbstractContextManager[None]:
    """The servers of models' APIs, if *page* has real models."""
    if not any("mcp_host.providers" in block.text for block in page.blocks):
        return nullcontext()
    from model_servers import model_servers

    return model_servers()


@contextmanager
def own_programs_first() -> Iterator[None]:
    """Use the checkout's "python" and "mcp-host", also for the servers that a snippet starts."""
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
    try:
        yield
    finally:
        os.environ["PATH"] = path


def with_output(blocks: Sequence[Block]) -> Iterator[tuple[Block, str | None]]:
    """Each block, with the output that the page shows after it, if any."""
    for block, after in pairwise([*blocks, None]):
        assert block is not None, "only the last is"
        prints = after is not None and after.language == "text" and after.section == block.section
        yield block, after.text if after is not None and prints else None


async def run_block(block: Block, expected: str | None, scope: dict[str, object]) -> bool:
    """Run one block. Returns whether there was anything to do."""
    if block.language == "python" and not block.name:
        with anyio.fail_after(TIMEOUT):
            compare(expected, await run_python(block, scope))
        return True
    return do_block(block)


def do_block(block: Block) -> bool:
    """Check, write or run a block that is no code for this process. Returns whether there was anything to do."""
    match block:
        case Block(language="python", name=name) if name.startswith("examples/"):
            check_excerpt(block.text, (ROOT / name).read_text(encoding="utf-8"))
        case Block(language="python", name=name):
            Path(name).write_text(block.text, encoding="utf-8")
        case Block(language="console", name=name):
            for command, output in sessions(block.text):
                compare(output, run_command(command, code=int(name.removeprefix("exits ") or 0)))
        case _:
            return False
    return True


async def run_python(block: Block, scope: dict[str, object]) -> str:
    """Run code in *scope*; return its output."""
    compiled: CodeType = compile(block.text, "<snippet>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with redirect_stdout(io.StringIO()) as printed:
        result = FunctionType(compiled, scope)()
        if compiled.co_flags & CO_COROUTINE:
            await result
    return printed.getvalue()


def check_excerpt(excerpt: str, whole: str) -> None:
    """Check that *whole* has these lines in sequence, at any indentation."""
    lines, wanted = whole.splitlines(), dedent(excerpt).splitlines()
    for start in range(len(lines) - len(wanted) + 1):
        margin = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
        if lines[start : start + len(wanted)] == indent(dedent(excerpt), margin).splitlines():
            return
    raise SnippetError("the example file does not have these lines")


def sessions(text: str) -> Iterator[tuple[str, str | None]]:
    """The commands of a console block, each with its output, or None if the block shows none."""
    for part in text.removeprefix("$ ").split("\n$ "):
        command, _, output = part.partition("\n")
        yield command, output or None


def run_command(command: str, *, code: int = 0) -> str:
    """Run one command, without a shell; return its output.

    Raises:
        SnippetError: It ended with another exit code.
    """
    done = subprocess.run(
        shlex.split(command),
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode != code:
        raise SnippetError(f"{command} ended with code {done.returncode}:\n{done.stdout}")
    return done.stdout


def compare(expected: str | None, found: str) -> None:
    """Check that a snippet has printed what the page shows, if it shows anything."""
    if expected is None:
        return
    if not OutputChecker().check_output(expected.rstrip() + "\n", found.rstrip() + "\n", ELLIPSIS):
        raise SnippetError(f"it prints\n{indent(found, '    ')}and the page says\n{indent(expected, '    ')}")


if __name__ == "__main__":
    try:
        print(anyio.run(run_page, read(Path(sys.argv[1]).resolve())))
    except SnippetError as problem:
        sys.exit(str(problem))
