"""The contract of adapters and the approval: a person who views the whole request sees all that the model gets of it."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

import pytest

from mcp_host.errors import InputRefused
from mcp_host.providers.exchange.requests import Prompt
from mcp_host.sampling.display import describe
from mcp_host.terminal.text import Layout
from tests.interop.providers.contract.adapters import Adapter, leaves
from tests.interop.providers.contract.asking import Wire, after, assistant, request, result, used, user
from tests.interop.providers.contract.test_requests import encoded
from tests.providers.prompts import names_of

MARKER = re.compile("marker-[a-z-]+")

EXTRA = {"_meta": {"marker-meta": "marker-in-meta"}, "marker-extra": "marker-in-extra"}
HINTS = {"annotations": {"lastModified": "marker-time"}, **EXTRA}
LINK: Wire = {
    "type": "resource_link",
    "uri": "file:///marker-uri",
    "name": "marker-name",
    "title": "marker-title",
    "description": "marker-description",
    "mimeType": "text/marker-kind",
    "icons": [{"src": "marker-icon"}],
    **HINTS,
}
SCHEMA: Wire = {
    "type": "object",
    "title": "marker-schema",
    "description": "marker-of-schema",
    "required": ["marker-a"],
    "properties": {
        "marker-a": {
            "type": "object",
            "title": "marker-of-a",
            "examples": ["marker-example"],
            "default": {"marker-k": "marker-v"},
            "properties": {"marker-b": {"type": "string", "description": "marker-of-b", "pattern": "marker-pattern"}},
        },
        "marker-c": {"$ref": "#/$defs/marker-def"},
    },
    "not": {"const": "marker-not"},
    "$defs": {"marker-def": {"enum": ["marker-choice"], "$comment": "marker-comment"}},
}
TOOL: Wire = {
    "name": "marker-tool",
    "title": "marker-tool-title",
    "description": "marker-of-tool",
    "inputSchema": SCHEMA,
    "outputSchema": {"type": "object", "title": "marker-output"},
    "annotations": {"title": "marker-hint"},
    **EXTRA,
}


def resource(**fields: Any) -> Wire:
    return {"type": "resource", "resource": {"uri": "file:///marker-uri", **fields, **EXTRA}, **HINTS}


def blob(kind: str) -> Wire:
    return resource(mimeType=kind, blob=encoded(b"marker-blob"))


IN_RESULTS: dict[str, Wire] = {
    "text": {"type": "text", "text": "marker-text", **HINTS},
    "link": LINK,
    "text resource": resource(mimeType="text/marker-kind", text="marker-text"),
    "empty resource": resource(text=""),
    "text blob": blob("text/marker-kind"),
    "JSON blob": blob("application/json"),
    "PDF blob": blob("application/pdf"),
    "image blob": blob("image/png"),
    "blob without a type": resource(blob=encoded(b"marker-blob")),
    "text as an image": {"type": "image", "mimeType": "text/plain", "data": encoded(b"marker-data"), **HINTS},
    "text as audio": {"type": "audio", "mimeType": "text/plain", "data": encoded(b"marker-data"), **HINTS},
}
IN_PARAMS: dict[str, Wire] = {
    "system prompt": {"systemPrompt": "marker-system"},
    "stop sequences": {"stopSequences": ["marker-stop"]},
    "preferences": {"modelPreferences": {"hints": [{"name": "marker-model"}], **EXTRA}},
    "a tool": {"tools": [TOOL]},
    "a required tool": {"tools": [TOOL], "toolChoice": {"mode": "required", **EXTRA}},
    "unknown fields": EXTRA,
}


def texts(written: object) -> str:
    """All texts and names in a request to a provider, with those in base64 and in data URLs."""
    found = [str(leaf) for leaf in leaves(written)]
    for text in list(found):
        try:
            found.append(b64decode(text.rpartition(",")[2], validate=True).decode())
        except ValueError:
            continue
    return "\n".join([*found, repr(written)])


async def check(adapter: Adapter, *messages: Wire, **params: Any) -> bool:
    """Every marker in what the adapter writes is in the whole request as it is shown. Whether there is one to see."""
    asked = request(*messages, **params)
    async with adapter.open("http://127.0.0.1:1", "no key") as make:  # nothing is sent
        model = make()
        try:
            written = model.write_request(Prompt(asked, "gpt-5", names_of(asked, model.name_rule)))
        except InputRefused:
            return True  # the model gets nothing
    shown = "\n".join([row or "" for row in describe(asked, Layout(10**6), whole=True)])

    reached = set(MARKER.findall(texts(written)))

    assert {marker for marker in reached if marker not in shown} == set()
    return bool(reached)


async def test_what_a_tool_returned_is_shown(adapter: Adapter, subtests: pytest.Subtests) -> None:
    for kind, block in IN_RESULTS.items():
        with subtests.test(kind):
            assert await check(adapter, *after(block, **EXTRA))


@pytest.mark.parametrize("kind", ["text", "text as an image", "text as audio"])
async def test_what_the_user_and_the_assistant_said_is_shown(adapter: Adapter, kind: str) -> None:
    block = IN_RESULTS[kind]
    assert await check(adapter, {**user(block), **EXTRA})
    assert await check(adapter, user("Hello"), {**assistant(block), **EXTRA}, user("Go on."))


async def test_calls_and_structured_content_are_shown(adapter: Adapter) -> None:
    calls = assistant({**used("marker-id", "marker-tool", **{"marker-key": {"marker-k": ["marker-value"]}}), **EXTRA})
    structured = {"marker-structured": ["marker-in-structured"]}
    assert await check(adapter, user("Hello"), calls, user(result("marker-id", structuredContent=structured, **EXTRA)))


async def test_the_other_parameters_are_shown(adapter: Adapter, subtests: pytest.Subtests) -> None:
    for kind, params in IN_PARAMS.items():
        with subtests.test(kind):
            reached = await check(adapter, **params)
            assert reached or kind in ("stop sequences", "preferences", "unknown fields")


async def test_metadata_for_the_provider_are_shown_at_once(adapter: Adapter) -> None:
    """Not in the whole request only: they may say whose account or project is billed."""
    assert await check(adapter, metadata=adapter.metadata)
    asked = request(metadata=adapter.metadata)

    assert "  | metadata: {" in "\n".join([row or "" for row in describe(asked, Layout())])
