"""A `ClientGroup` in the agents of other frameworks: what their models get of the results of calls."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.interop.processes import agents_of, lent_coverage

IN_TIME = 250.0  # seconds, below the bound of every test: the agents bound their runs themselves, and importing a framework is not in that

Forms: TypeAlias = "dict[str, Any]"
"""What a model gets, by framework."""

PNG = "iVBORw0KGgo="
DATA = "the bytes"
LINK = '{"name":"dots","uri":"shop:dots","type":"resource_link"}'


def forms(pydantic_ai: object, openai_agents: object, langchain: object, google_adk: object) -> Forms:
    return {
        "pydantic_ai": pydantic_ai,
        "openai_agents": openai_agents,
        "langchain": langchain,
        "google_adk": google_adk,
    }


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def input_text(said: str) -> dict[str, str]:
    return {"type": "input_text", "text": said}


def message(*content: object, status: str = "success", structured: object = None) -> object:
    artifact = None if structured is None else {"structured_content": structured}
    return {"status": status, "content": list(content), "artifact": artifact}


def response(*content: object, files: Sequence[object] = (), error: bool = False, **structured: object) -> object:
    return {"response": {"content": list(content), "isError": error, **structured}, "files": list(files)}


def answered(said: str, value: object, structured: object = None) -> Forms:
    more: dict[str, Any] = {} if structured is None else {"structuredContent": structured}
    return forms(
        {"outcome": "success", "content": value},
        [input_text(said)],
        message(text(said), structured=structured),
        response(text(said), **more),
    )


def failed(said: str, content: list[object]) -> Forms:
    """The tool ran and failed: the same as for the MCP support of each framework."""
    return forms(
        {"outcome": "retried", "content": said},
        [input_text(said)],
        message(text(said), status="error"),
        response(*content, error=True),
    )


def not_run(said: str) -> Forms:
    return forms(
        {"outcome": "failed", "content": said},
        [input_text(said)],
        message(text(said), status="error"),
        {"response": {"error": said}, "files": []},
    )


GOT = {
    "a text": answered("Hello, Alan!", "Hello, Alan!"),
    "a text that looks like none": answered("null", "null"),
    "arguments that do not fit": not_run(
        "The arguments do not match the tool's inputSchema: $.name: not of type 'string'"
    ),
    "an object": answered('{"count":1}', {"count": 1}, {"count": 1}),
    "a number": answered("6", 6, {"result": 6}),
    "an object that is said twice, and a link": forms(
        {"outcome": "success", "content": [LINK, {"dots": 1}]},
        [input_text('{"dots": 1}'), input_text(LINK)],
        message(text('{"dots": 1}'), text(LINK), structured={"dots": 1}),
        response(text('{"dots": 1}'), text(LINK), structuredContent={"dots": 1}),
    ),
    "content of each kind": forms(
        {
            "outcome": "success",
            "content": [
                "a dot",
                {"media_type": "image/png", "data": DATA},
                {"media_type": "audio/wav", "data": DATA},
                "[image/png, 1 characters of base64]",
                LINK,
                {"media_type": "application/octet-stream", "data": DATA},
                {"dots": 1},
            ],
        },
        [
            input_text("a dot"),
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
            input_text("[audio/wav: 8 bytes are left out]"),
            input_text("[image/png, 1 characters of base64]"),
            input_text(LINK),
            input_text("[application/octet-stream: 8 bytes are left out]"),
            input_text('{"dots":1}'),
        ],
        message(
            text("a dot"),
            {"type": "image", "base64": PNG, "mime_type": "image/png"},
            text("[audio/wav: 8 bytes are left out]"),
            text("[image/png, 1 characters of base64]"),
            text(LINK),
            {"type": "file", "base64": PNG, "mime_type": "application/octet-stream"},
            text('{"dots":1}'),
            structured={"dots": 1},
        ),
        response(
            text("a dot"),
            text("[image/png, 1 characters of base64]"),
            text(LINK),
            structuredContent={"dots": 1},
            files=[["image/png", DATA], ["audio/wav", DATA], ["application/octet-stream", DATA]],
        ),
    ),
    "a failure": failed("sold out", [text("sold out")]),
    "a failure without a word": failed("the tool failed", []),
    "a denial": not_run("This call was denied: not today"),
    "a server that goes away before the call": not_run("the tool spare__lend failed: its server is not available"),
    "a server that ends in the call": not_run(
        "the tool doomed__crash failed: its server is not available; it may have run"
    ),
}

NAMES = ["count", "double", "fail", "find", "forbidden", "greet", "hang", "refuse", "show"]
SHOP = [f"shop__{name}" for name in NAMES]
DOOMED = ["doomed__crash", "doomed__haunt"]
BOO = answered("Boo!", "Boo!")
ASKED = ["greet", "greet", "count", "double", "find", "show", "fail", "refuse", "forbidden"]
CALLED = [*(f"shop__{name}" for name in ASKED), "spare__lend", "doomed__crash"]

MORE: dict[str, dict[str, object]] = {
    "pydantic_ai": {"own approval": [["shop__greet"], '{"shop__greet":"Hello, a!"}', ["shop__greet"]]},
    "openai_agents": {
        "own approval": [["shop__greet"], "Hello, a with basket 7!", ["shop__greet"]],
        "more": ["shop__order", "An order for Alan.", "the tool shop__greet is no longer available", True],
    },
    "langchain": {"more": ["shop__greet is called with `await tool.ainvoke(...)`", {"readOnlyHint": True}, None]},
    "google_adk": {},
}


@pytest.mark.parametrize("framework", MORE)
def test_an_agent_of_another_framework_calls_the_tools_of_a_group(
    framework: str, mark: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """The group approves for the caller. A server that is gone is a text at once, is left out of the next turns, and is in those
    after it is back. A run that is cancelled cancels its call at the server.
    """
    environment = lent_coverage(tmp_path)
    ended = subprocess.run(
        agents_of(framework, mark), capture_output=True, text=True, timeout=IN_TIME, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)

    for case, expected in GOT.items():
        with subtests.test(case):
            assert report.pop(case) == expected[framework]
    assert report == {
        "offered": [*SHOP, "spare__lend", *DOOMED],
        "no longer offered": ["spare__lend"],
        "asked": [[name.partition("__")[0], name, "alice"] for name in CALLED],
        "while a server is dead": [SHOP, SHOP, GOT["a text"][framework]],
        "when it is back": [[*SHOP, *DOOMED], [*SHOP, *DOOMED], BOO[framework]],
        **MORE[framework],
    }
