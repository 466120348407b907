"""`@modelcontextprotocol/server-filesystem` over stdio, in a temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import Event, fail_after

from mcp_host import Client, Stdio
from mcp_host.types import CallToolResult, TextContent
from tests.interop.processes import filesystem

IN_TIME = 30.0  # seconds for a test; each takes one at most when the machine is idle


def _folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path.resolve() / name
    folder.mkdir()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _folder(tmp_path, "files of the test")


@pytest.fixture
def others(tmp_path: Path) -> tuple[Path, Path]:
    return _folder(tmp_path, "first"), _folder(tmp_path, "second")


def said(text: str) -> CallToolResult:
    """What this server returns: a text, and the same as structured content."""
    return CallToolResult(content=[TextContent(text=text)], structured_content={"content": text})


async def test_files_are_written_listed_and_read(folder: Path, mark: str) -> None:
    path = folder / "tides.txt"
    file = str(path)
    text = "high\nlow\n\u2028 — 満潮\n"
    with fail_after(IN_TIME):
        async with Client(Stdio(filesystem(folder, mark))) as client:
            tools = [tool.name for tool in await client.list_tools()]
            written = await client.call_tool("write_file", {"path": file, "content": text})
            listed = await client.call_tool("list_directory", {"path": str(folder)})
            read = await client.call_tool("read_text_file", {"path": file})
            head = await client.call_tool("read_text_file", {"path": file, "head": 1})

    assert {"read_text_file", "write_file", "list_directory", "list_allowed_directories"} <= set(tools)
    assert written == said(f"Successfully wrote to {file}")
    assert listed == said("[FILE] tides.txt")
    assert read == said(text)
    assert head == said("high")
    assert path.read_text() == text
    assert client.warnings == []


async def test_a_path_outside_the_folder_is_an_error_result(folder: Path, mark: str) -> None:
    outside = folder.parent / "secret.txt"
    outside.write_text("s3cret")
    with fail_after(IN_TIME):
        async with Client(Stdio(filesystem(folder, mark))) as client:
            await client.list_tools()  # an error result need not fit the output schema
            result = await client.call_tool("read_text_file", {"path": str(outside)})

    assert result.is_error
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert block.text.startswith("Access denied - path outside allowed directories")
    assert result.structured_content is None


async def test_the_roots_restrict_the_server_and_can_be_changed(
    folder: Path, others: tuple[Path, Path], mark: str
) -> None:
    first, second = others
    updates = [Event(), Event()]
    waiting = iter(updates)

    def on_stderr(line: str) -> None:
        if line.startswith("Updated allowed directories from MCP roots"):
            next(waiting).set()

    with fail_after(IN_TIME):
        async with Client(Stdio(filesystem(folder, mark), on_stderr=on_stderr), roots=[first]) as client:
            await updates[0].wait()
            before = await client.call_tool("list_allowed_directories")
            await client.set_roots([second])
            await updates[1].wait()
            after = await client.call_tool("list_allowed_directories")

    assert before == said(f"Allowed directories:\n{first}")
    assert after == said(f"Allowed directories:\n{second}")
