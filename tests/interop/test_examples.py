"""The examples that need other packages, in the environments that have them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.processes import Era, HttpServer, free_port, python_with, running
from tests.interop.sampled import Calls, Declared, Where, call_by_official, call_by_ours

EXAMPLES = Path(__file__).parents[2] / "examples"

SAID = """\
calculator asks, with 1 messages and 4 tools
calculator asks, with 3 messages and 4 tools
its tools say 24.0 and 18.0
calculator asks, with 5 messages and 4 tools
its tools say 42.0
"""


@pytest.mark.parametrize(
    ("version", "example"),
    [
        (2, "callback_in_official_sdk"),
        (2, "callback_in_official_session"),
        (1, "callback_in_official_session"),
        (2, "callback_in_fastmcp"),
        (1, "callback_in_fastmcp"),
        (1, "callback_in_langchain"),
        (2, "callback_in_pydantic_ai"),
        (2, "callback_in_google_adk"),
    ],
)
def test_another_client_answers_sampling_with_tools_through_our_callback(version: int, example: str) -> None:
    command = [python_with(version), str(EXAMPLES / f"{example}.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    result = '{"solve":"There are 42 legs."}\n' if example == "callback_in_pydantic_ai" else "There are 42 legs.\n"
    assert (ended.returncode, ended.stdout) == (0, SAID + result), ended.stderr


GROUP = """\
greeter runs greeter__greet
pydantic-ai: {"greeter__greet":"Hello, a!"}
OpenAI Agents: greeter__greet
greeter runs greeter__greet
LangChain: Hello, Alan!
Google ADK: greeter__greet
"""


def test_agents_of_other_frameworks_get_the_tools_of_a_group() -> None:
    command = [python_with(2), str(EXAMPLES / "group_in_agents.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout) == (0, GROUP), ended.stderr


# Servers that sample

SERVERS = [(2, "sampling_in_official_server"), (2, "sampling_in_fastmcp_server"), (1, "sampling_in_fastmcp_server")]
HTTP = """
import sys
sys.path.insert(0, {folder!r})
from {example} import server
server.run({transport!r}, host="127.0.0.1", port={port})
"""

CALLS: Calls = [
    ("classify", {"letter": "My tea is cold!"}),
    ("reply", {"letter": "Have you got 'tea' and 'coffee'?"}),
]


pytestmark = pytest.mark.backends("asyncio")  # that of our client only: the servers run in other processes


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[tuple[int, str], str]]:
    """Where each of the servers listens."""
    urls, marks = {}, []
    with ExitStack() as stack:
        for version, example in SERVERS:
            port, mark = free_port(), f"interop-{example}-{version}"
            transport = "http" if "fastmcp" in example else "streamable-http"
            code = HTTP.format(folder=str(EXAMPLES), example=example, transport=transport, port=port)
            command = [python_with(version), "-c", code, mark]
            urls[version, example] = stack.enter_context(HttpServer(command, port, ready="Uvicorn running")).url
            marks.append(mark)
        yield urls

    assert [running(mark) for mark in marks] == [[], [], []]


@pytest.mark.parametrize(
    ("client", "transport", "declared"),
    [
        ("official", "stdio", "tools"),
        ("official", "http", "plain"),
        ("ours", "stdio", "plain"),
        ("ours", "http", "tools"),
    ],
)
@pytest.mark.parametrize(
    ("version", "example", "era"),
    [
        *((version, example, "legacy") for version, example in SERVERS),
        *((version, example, "modern") for version, example in SERVERS if version == 2),
    ],
)
async def test_a_server_of_others_samples_with_ours(
    version: int,
    example: str,
    era: Era,
    client: str,
    transport: str,
    declared: Declared,
    urls: dict[tuple[int, str], str],
    mark: str,
) -> None:
    stdio = [python_with(version), str(EXAMPLES / f"{example}.py"), mark]
    where: Where = stdio if transport == "stdio" else urls[version, example]
    if client == "ours":
        report = await call_by_ours(where, era, declared, CALLS)
    else:
        report = await call_by_official(version, where, era, declared, CALLS)

    if declared == "tools":
        reply: object = {"result": "N: You said: 3 / 0"}
        asked = [
            "1 messages, required of answer: Classify this letter: My tea is cold!",
            "1 messages, auto of in_stock: Reply to letter N: Have you got 'tea' and 'coffee'?",
            "3 messages, auto of in_stock: 3 / 0",
        ]
    else:
        missing = "the client did not declare sampling.tools"
        failed = {"failed": f"Error calling tool 'reply': {missing}"}
        reply = failed if version == 1 else {"error": [-32021, missing]}
        asked = ["1 messages, no tools: Classify this letter: My tea is cold!"]
    assert json.loads(re.sub(r"\b\d{4}\b", "N", json.dumps(report))) == {
        "outcomes": [{"kind": "complaint", "urgent": True}, reply],
        "asked": asked,
    }
