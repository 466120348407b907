"""A server for the command's tests: something of each kind, and some of it hostile."""

from __future__ import annotations

import os
import sys

from anyio import Path, sleep_forever

from mcp_host.testing import Context, Server, ToolError
from mcp_host.types import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents

CLEAR = "\x1b[2J"  # clears a terminal
EVIL = f"evil{CLEAR}"
REVERSE = "\u202e"  # turns the direction of what follows

server = Server("everything", version="2.0", instructions=f"Be careful.\n{CLEAR}mcp-host: all is well")


@server.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    The second one is 1 unless you say otherwise.
    """
    return a + b


@server.tool(name=EVIL, title=f"Evil{REVERSE}", description=f"{CLEAR}Wipes\ryour\x07 screen.")
def evil() -> str:
    return f"{CLEAR}wiped\r{REVERSE}\x9b\nsecond line"


@server.tool(description="All kinds of content.")
def contents() -> list[TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink]:
    return [
        TextContent(text="text"),
        ImageContent(data="AAAA", mime_type="image/png"),
        EmbeddedResource(resource=TextResourceContents(uri="note://1", text="a note")),
        ResourceLink(uri="note://2", name="two"),
    ]


@server.tool
def fail() -> str:
    raise ToolError(f"the printer\nis on {CLEAR}fire")


@server.tool
async def work(context: Context) -> str:
    await context.report_progress(1, 2, f"half{CLEAR}")
    await context.report_progress(2)
    return "done"


@server.tool
def environment(name: str) -> str:
    return os.environ.get(name, "not set")


@server.tool
async def hang(path: str) -> None:
    """Write the id of this process to the FIFO at *path*, and never return."""
    await Path(path).write_text(str(os.getpid()))
    await sleep_forever()


@server.resource("note://1", title="One", description="A note.", mime_type="text/plain")
def note() -> str:
    return "a note"


@server.resource_template("note://{number}")
def notes(number: int) -> str:
    return f"note {number}"


@server.prompt
def greet(name: str, mood: str = "glad") -> str:
    """Greet somebody."""
    return f"Be {mood} to see {name}."


if __name__ == "__main__":
    print("started", file=sys.stderr)
    server.run_stdio()
