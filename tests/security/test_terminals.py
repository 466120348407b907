"""No text of a server controls a terminal or misleads a reader, wherever this library or its command repeats it."""

from __future__ import annotations

import json
import logging
from traceback import format_exception
from typing import Any

import pytest
from anyio import fail_after

from mcp_host import Client, Stdio
from mcp_host.cli import main
from mcp_host.errors import ConnectionClosed, McpError
from tests.cli.test_command import scripted
from tests.faults.http_server import SOON
from tests.faults.processes import BRIEF
from tests.transports.children import python

EVIL = "a\x1b]0;x\x07\x1b[2J\x9b31m\u202egnp\u2066\u200b\r\x08\x7f\x00\u2028b"
"""A title, a wiped screen, colours, text that runs backwards, a line that is overwritten: as a terminal would read it."""


def harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


ANSWERS = {
    "an error": {"error": {"code": 1, "message": EVIL, "data": EVIL}},
    "no result": {"result": {"content": [{"type": EVIL, EVIL: EVIL}]}},
    "a wrong shape": {"result": {"content": {EVIL: EVIL}}},
    "a wrong kind": {"result": {"content": [{"type": "text", "text": 5, "annotations": {EVIL: EVIL}}]}},
    "no id": {"id": EVIL, "result": {}},
}
SAYS = """
ANSWERS = json.loads(sys.argv[1])
while True:
    request = read()
    if request["method"] == "tools/list":
        tools = [{"name": EVIL, "inputSchema": {}}, {"name": EVIL}, {"name": 5, EVIL: EVIL}, EVIL]
        reply(request, {"tools": tools, "nextCursor": EVIL})
    elif request["method"] == "tools/call":
        raw(EVIL.replace("\\0", "") + "\\n")
        say({"id": 9, "method": EVIL, "params": {}})
        say({"id": 10, "method": "sampling/createMessage", "params": {EVIL: EVIL}})
        say({"method": "notifications/progress", "params": {EVIL: EVIL}})
        say({"id": request["id"], **ANSWERS.pop(0)})
        if not ANSWERS:
            sys.stderr.write(EVIL + "\\n" + EVIL)
            sys.exit(3)
"""


async def test_the_output_of_a_process_is_escaped_in_errors_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.NOTSET)
    told: list[str] = []
    body = f"EVIL = {EVIL!r}\n{SAYS}"
    with fail_after(SOON * 2):
        async with Client(Stdio([*python(body), json.dumps(list(ANSWERS.values()))]), limits=BRIEF) as client:
            await client.list_tools()
            for _ in ANSWERS:
                with pytest.raises(McpError) as caught:
                    await client.call_tool("x")
                told += format_exception(caught.value)
        told += [*client.warnings, repr(client.counters)]

    assert len(client.warnings) >= 2
    assert len(caplog.records) >= 5
    assert [each for each in (*told, caplog.text) if not harmless(each)] == []


STDERR = """
sys.stderr.write("1970-01-01 CRITICAL root: all is lost\\r\\n\\x1b]0;x\\x07\\nTraceback (most recent call last):\\n")
sys.exit(3)
"""


async def test_text_of_stderr_cannot_look_like_a_line_of_the_log() -> None:
    with fail_after(SOON), pytest.raises(ConnectionClosed) as caught:
        await Client(Stdio(python(STDERR, hands=False)), limits=BRIEF).connect()

    first, *rest = str(caught.value).split("\n")
    assert first.endswith("exited with code 3; its stderr:")
    assert rest == [
        "  | 1970-01-01 CRITICAL root: all is lost",
        "  | \\x1b]0;x\\x07",
        "  | Traceback (most recent call last):",
    ]


# The command

TOOL = {"name": EVIL, "title": EVIL, "description": EVIL, "inputSchema": {"properties": {EVIL: {"type": EVIL}}}}
THING = {
    "name": EVIL,
    "title": EVIL,
    "description": EVIL,
    "uri": EVIL,
    "uriTemplate": EVIL,
    "arguments": [{"name": EVIL}],
}
OFFERS = {"tools": {EVIL: EVIL}, "resources": {}, "prompts": {}, "experimental": {EVIL: {}}}
WELCOME = {
    "protocolVersion": "2025-11-25",
    "capabilities": OFFERS,
    "serverInfo": {"name": EVIL, "version": EVIL, "title": EVIL},
    "instructions": EVIL,
}
LOUDMOUTH: dict[str, Any] = {
    "initialize": {"result": WELCOME},
    "tools_list": {"result": {"tools": [TOOL, TOOL, {EVIL: EVIL}]}},
    "resources_list": {"result": {"resources": [THING, {EVIL: EVIL}]}},
    "resources_templates_list": {"result": {"resourceTemplates": [THING]}},
    "prompts_list": {"result": {"prompts": [THING], "nextCursor": EVIL}},
    "tools_call": {"result": {"content": [{"type": "text", "text": EVIL}, {"type": EVIL}], "isError": True}},
}


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["page", "document"])
@pytest.mark.parametrize("verb", [["tools"], ["inspect"], ["call", "x"]], ids=lambda verb: verb[0])
def test_the_text_of_a_server_is_escaped_by_the_command(
    verb: list[str], form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*verb, *form, *scripted(OFFERS, **LOUDMOUTH)])

    out, err = capsys.readouterr()
    assert "gnp" in out + err
    assert harmless(out)
    assert harmless(err)
