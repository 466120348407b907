"""A host of servers that others wrote, from a file: one is dead and one crashes, and the program has 25 lines."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clock import advance
from tests.group.support import Seen
from tests.interop.processes import (
    HttpServer,
    everything_command,
    filesystem,
    free_port,
    python_with,
    tools_server,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "host_of_a_file.py"
IN_TIME = 200.0  # seconds, for what hangs
WAIT = 5.0  # seconds for all servers to answer, by default
SERVERS = ["everything", "files", "stock", "weather"]
MOST = 25  # lines
STOCK = """
import os
from fastmcp import FastMCP
server = FastMCP("stock")

@server.tool
def count(article: str) -> str:
    return f"3 {article}"

@server.tool
def crash() -> str:
    os._exit(7)

server.run(show_banner=False)
"""

CALLS = """\
everything__echo {"message": "hello"}; everything__trigger-sampling-request {"prompt": "?"}; \
files__list_directory {"path": "FOLDER"}; stock__count {"article": "teas"}; weather__measure {"city": "Oslo"}"""
CRASH = 'stock__crash {}; everything__echo {"message": "still here"}'
SAID = [
    *("Echo: hello", "What shall I call?", "[FILE] tides.txt", "3 teas", '"city": "Oslo"'),
    *("the tool stock__crash failed: its server is not available; it may have run", "Echo: still here", "3 cups"),
]
ALLOWED = [
    *("everything__echo", "everything__trigger-sampling-request", "files__list_directory"),
    *("stock__count", "stock__crash", "weather__measure"),
]
"""Once for the session, and so not again in later turns."""
AGAIN = 'stock__count {"article": "cups"}'


@pytest.mark.adjustable_clock
async def test_one_that_is_dead_and_one_that_crashes_cost_the_others_nothing(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dead one never answers. By the clock, no more than the wait for all servers goes by for it: it is still connecting."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "tides.txt").touch()
    port, seen = free_port(), Seen()
    commands = {
        "everything": everything_command("stdio", mark),
        "files": filesystem(folder, mark),
        "dead": [sys.executable, "-c", "import time; time.sleep(1000)", mark],
        "stock": [python_with(2), "-c", STOCK, mark],
    }
    servers: dict[str, Any] = {name: {"command": words[0], "args": words[1:]} for name, words in commands.items()}
    servers["weather"] = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))

    async def prompts() -> AsyncIterator[str]:
        yield CALLS.replace("FOLDER", str(folder))
        yield CRASH
        await seen.until("stock", "ready", 2)
        yield AGAIN

    async def wait_for_those_that_live() -> None:
        for name in SERVERS:
            await seen.until(name, "ready")
        advance(WAIT)

    main = runpy.run_path(str(EXAMPLE))["main"]
    monkeypatch.setitem(main.__globals__, "show", seen)
    with (
        HttpServer(tools_server(2, "http", port, mark), port, ready="Uvicorn running"),
        anyio.fail_after(IN_TIME),
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_those_that_live)
            await main(str(file), prompts())

    lines = capsys.readouterr().out.splitlines()
    allowed = [line for line in lines if line.startswith("allowed: ")]
    said = "\n".join(line for line in lines if line not in allowed)
    places = [said.index(part) for part in SAID]
    assert places == sorted(places)
    assert sorted(allowed[: len(servers)]) == [f"allowed: {name}" for name in sorted(servers)]
    assert sorted(allowed[len(servers) :]) == [f"allowed: {name}" for name in ALLOWED]
    assert seen.of("stock")[-3:] == ["ready", "down", "ready"]
    assert seen.of("dead") == ["connecting", "needs_consent", "connecting"]


def test_the_program_has_25_lines_beside_the_stand_in_for_a_model() -> None:
    text = EXAMPLE.read_text()
    lines = set[int]()
    for part in ast.parse(text).body:
        if getattr(part, "name", "") != "model" and not isinstance(part, ast.Expr):
            lines |= {*range(part.lineno, (part.end_lineno or 0) + 1)}
            for inner in ast.walk(part):
                if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                    lines -= {*range(inner.lineno, (inner.end_lineno or 0) + 1)}

    own = [line for number, line in enumerate(text.splitlines(), 1) if number in lines and line.strip()]
    assert len(own) <= MOST
    assert not any(";" in line for line in own)
