"""The contract of adapters, what they send: each cell of the matrix, and that the provider's API takes all of it."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from anyio import fail_after

from mcp_host.errors import InputRefused, SamplingError
from mcp_host.functions import FunctionTool
from mcp_host.sampling import run_tool_loop
from mcp_host.types import CallToolResult, UserMessage
from tests.interop.providers.contract.adapters import ADAPTERS, Adapter, reached, tools_of
from tests.interop.providers.contract.asking import (
    ADD,
    LOOK,
    Wire,
    after,
    ask,
    assistant,
    refused,
    request,
    result,
    used,
    user,
)
from tests.interop.providers.contract.matrix import FEATURES, MATRIX
from tests.interop.providers.scripted import Called, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.base import Heard


def encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


PNG = encoded(b"\x89PNG\r\n\x1a\nmarker")
WAV = encoded(b"RIFFxxxxWAVEmarker")
PDF = encoded(b"%PDF-1.4 marker")
TEXT: Wire = {"type": "text", "text": "marker-text"}
IMAGE: Wire = {"type": "image", "data": PNG, "mimeType": "image/png"}
SVG: Wire = {"type": "image", "data": encoded(b"<svg/>"), "mimeType": "image/svg+xml"}
AUDIO: Wire = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}


def resource(**fields: Any) -> Wire:
    return {"type": "resource", "resource": {"uri": "file:///marker.txt", **fields}}


BLOCKS: dict[str, tuple[Wire, str]] = {
    "text": (TEXT, "marker-text"),
    "image": (IMAGE, PNG),
    "audio": (AUDIO, WAV),
    "text resource": (resource(text="marker-text", mimeType="text/plain"), "marker-text"),
    "image resource": (resource(blob=PNG, mimeType="image/png"), PNG),
    "PDF resource": (resource(blob=PDF, mimeType="application/pdf"), PDF),
    "link": ({"type": "resource_link", "uri": "file:///marker.txt", "name": "it"}, "file:///marker.txt"),
}
IN_USER = ["text", "image", "audio"]


def test_the_matrix_has_a_cell_for_each_adapter_and_feature() -> None:
    assert {name: list(cells) for name, cells in MATRIX.items()} == {
        adapter.name: list(FEATURES) for adapter in ADAPTERS
    }
    assert [
        cell for cells in MATRIX.values() for cell in cells.values() if cell.state == "emulated" and not cell.note
    ] == []


async def check(
    adapter: Adapter, serve: Serve, feature: str, messages: list[Wire], marker: object, **params: Any
) -> None:
    """A feature reaches the server, or is left out, named or refused: as the matrix says."""
    server = serve(adapter.server, Said(text="ok"))
    state = adapter.cell(feature).state
    arguments = adapter.audio if feature.endswith(".audio") and state in ("mapped", "emulated") else {}
    async with adapter.open(server.url, server.key) as make:
        if state == "refused":
            with refused(server, "messages[" if messages else feature):
                await ask(make(**arguments), *messages, **params)
            return
        answer = await ask(make(**arguments), *messages, **params)

    assert answer.text == "ok"
    assert reached(server, marker) == (state not in ("left out", "named"))
    assert ("this model takes no " in str(server.last)) == (state == "named")


@pytest.mark.parametrize("kind", IN_USER)
async def test_what_the_user_says_reaches_the_model_or_is_refused(adapter: Adapter, serve: Serve, kind: str) -> None:
    block, marker = BLOCKS[kind]
    await check(adapter, serve, f"user.{kind}", [user("Look:", block)], marker)


@pytest.mark.parametrize("label", ["IMAGE/PNG", "image/png; q=1", "image/jpeg", "image/svg+xml", "audio/mpeg"])
async def test_the_type_of_an_image_is_that_of_its_bytes(adapter: Adapter, serve: Serve, label: str) -> None:
    """Ollama's API has no types."""
    server = serve(adapter.server, Said(text="ok"), Said(text="ok"))
    image = {**IMAGE, "mimeType": label}
    async with adapter.open(server.url, server.key) as make:
        for messages in ([user(image)], after(image, resource(blob=PNG, mimeType=label), resource(blob=PNG))):
            await ask(make(), *messages, tools=[ADD])

            written = str(server.last)
            assert written.count(PNG) == (1 if len(messages) == 1 else 3)
            assert label not in written
            assert written.count("image/png") == (0 if adapter.name == "ollama" else written.count(PNG))


async def test_an_image_of_the_assistant_reaches_the_model_or_is_refused(adapter: Adapter, serve: Serve) -> None:
    messages = [user("Draw."), assistant(IMAGE), user("Again.")]
    await check(adapter, serve, "assistant.image", messages, PNG)


@pytest.mark.parametrize("kind", BLOCKS)
async def test_what_a_tool_returns_reaches_the_model_or_is_refused(adapter: Adapter, serve: Serve, kind: str) -> None:
    block, marker = BLOCKS[kind]
    await check(adapter, serve, f"result.{kind}", after("Here:", block), marker, tools=[ADD])


async def test_half_of_a_character_in_a_prompt_or_from_a_function_ends_no_loop(adapter: Adapter, serve: Serve) -> None:
    def look() -> str:
        """Look."""
        return "caf\udce9"  # as `os.listdir` gives a name that is no UTF-8

    server = serve(adapter.server, Said(calls=[Called("look")]), Said(text="ok"))
    async with adapter.open(server.url, server.key) as make:
        done = await run_tool_loop(make(), "a\ud83d b", system_prompt="c\ud83d", tools=[look])

    assert done.text == "ok"
    assert [reached(server, words) for words in ("caf\ufffd", "a\ufffd b", "c\ufffd")] == [True] * 3


async def test_a_result_that_is_only_a_picture_is_taken(adapter: Adapter, serve: Serve) -> None:
    if adapter.cell("result.image").state != "refused":
        await check(adapter, serve, "result.image", after(IMAGE), PNG, tools=[ADD])


async def test_that_a_tool_failed_reaches_the_model(adapter: Adapter, serve: Serve) -> None:
    """The request differs from that of a result that says the same without having failed."""
    server = serve(adapter.server, Said(text="ok"), Said(text="ok"))
    async with adapter.open(server.url, server.key) as make:
        await ask(make(), *after("marker-text", isError=True), tools=[ADD])
        assert reached(server, "marker-text")
        await ask(make(), *after("marker-text"), tools=[ADD])

    assert server.heard[0].body != server.heard[1].body


async def test_a_picture_of_a_failure_reaches_the_model_or_is_refused(adapter: Adapter, serve: Serve) -> None:
    messages = after("It looked like this:", IMAGE, isError=True)
    await check(adapter, serve, "result.picture of a failure", messages, PNG, tools=[ADD])


async def test_structured_content_reaches_the_model(adapter: Adapter, serve: Serve) -> None:
    messages = after(structuredContent={"sum": "marker-structured"})
    await check(adapter, serve, "result.structured", messages, "marker-structured", tools=[ADD])


@pytest.mark.parametrize("more", [{}, {"isError": True}], ids=["fine", "failed"])
async def test_a_result_without_content_is_taken(adapter: Adapter, serve: Serve, more: Wire) -> None:
    server = serve(adapter.server, Said(text="ok"))
    async with adapter.open(server.url, server.key) as make:
        assert (await ask(make(), *after(**more), tools=[ADD])).text == "ok"


async def test_empty_texts_in_the_conversation_are_no_error(adapter: Adapter, serve: Serve) -> None:
    messages = [user("Hello", ""), assistant(""), user("marker-text", " ")]
    await check(adapter, serve, "user.text", messages, "marker-text")


async def test_several_messages_of_one_role_are_taken(adapter: Adapter, serve: Serve) -> None:
    messages = [user("Hello"), user("there"), assistant("Hi"), assistant("you"), user("marker-text")]
    await check(adapter, serve, "user.text", messages, "marker-text")


async def test_the_system_prompt_reaches_the_model(adapter: Adapter, serve: Serve) -> None:
    await check(adapter, serve, "systemPrompt", [], "marker-system", systemPrompt="marker-system")


async def test_the_maximum_of_tokens_reaches_the_model(adapter: Adapter, serve: Serve) -> None:
    await check(adapter, serve, "maxTokens", [], 1234, maxTokens=1234)


async def test_the_temperature_reaches_the_model_or_is_left_out(adapter: Adapter, serve: Serve) -> None:
    await check(adapter, serve, "temperature", [], 0.25, temperature=0.25)


async def test_stop_sequences_reach_the_model_or_end_its_answer(adapter: Adapter, serve: Serve) -> None:
    if adapter.cell("stopSequences").state != "emulated":
        await check(adapter, serve, "stopSequences", [], "MARKER", stopSequences=["MARKER"])
        return
    server = serve(adapter.server, Said(text="2 +MARKER 3"))
    async with adapter.open(server.url, server.key) as make:
        answer = await ask(make(), stopSequences=["MARKER"])

    assert (answer.text, answer.stop_reason) == ("2 +", "stopSequence")


async def test_metadata_of_the_provider_reaches_it_or_is_refused(adapter: Adapter, serve: Serve) -> None:
    await check(adapter, serve, "metadata", [], "marker-metadata", metadata=adapter.metadata)


async def test_metadata_that_the_provider_does_not_have_are_refused_or_ignored(adapter: Adapter, serve: Serve) -> None:
    server = serve(adapter.server, Said(text="ok"))
    metadata = {"no such thing": {"marker": [1]}}
    async with adapter.open(server.url, server.key) as make:
        with refused(server, "metadata"):
            await ask(make(), metadata=metadata)
        assert (await ask(make(metadata="ignore"), metadata=metadata)).text == "ok"


CHOICES: dict[str, Wire] = {
    "choice.auto": {"toolChoice": {"mode": "auto"}},
    "choice.required": {"toolChoice": {"mode": "required"}},
    "choice.none": {"toolChoice": {"mode": "none"}},
    "choice.one": {"toolChoice": {"mode": "required", "name": "add"}},
    "choice.single": {"toolChoice": {"mode": "auto", "disable_parallel_tool_use": True}},
}


@pytest.mark.parametrize("feature", CHOICES)
async def test_the_tool_choice_reaches_the_model_as_the_provider_has_it(
    adapter: Adapter, serve: Serve, feature: str
) -> None:
    server = serve(adapter.server, Said(text="ok"))
    if feature in ("choice.required", "choice.one"):
        server.say((adapter.required if feature == "choice.required" else adapter.forced)("add", {"a": 1, "b": 2}))
    async with adapter.open(server.url, server.key) as make:
        answer = await ask(make(), tools=[ADD, LOOK], **CHOICES[feature])

    assert adapter.choice(server.last) == adapter.choices[feature]
    if feature in ("choice.required", "choice.one"):
        [call] = answer.tool_uses
        assert (call.name, call.input, answer.stop_reason) == ("add", {"a": 1, "b": 2}, "toolUse")
    else:
        assert (answer.text, answer.stop_reason) == ("ok", "endTurn")


async def test_under_none_a_conversation_with_tool_calls_goes_on(adapter: Adapter, serve: Serve) -> None:
    server = serve(adapter.server, Said(text="ok"), Said(text="ok"))
    async with adapter.open(server.url, server.key) as make:
        with_tools = await ask(make(), *after("marker-text"), tools=[ADD], toolChoice={"mode": "none"})
        assert reached(server, "marker-text")
        without = await ask(make(), *after("marker-text"))

    assert (with_tools.text, without.text) == ("ok", "ok")
    assert reached(server, "marker-text")


NAMES = ["files/read.text", "files/read_text", "files.read/text", "7zip", "ünïcode", "a" * 128, "x" * 63 + ".y"]


async def test_tool_names_are_mapped_to_what_the_provider_allows_and_back(adapter: Adapter, serve: Serve) -> None:
    """Names that clash afterwards are told apart, in the tools and in the conversation."""

    def call_all(heard: Heard) -> Said:
        return Said(calls=[Called(name, {}) for name, _ in tools_of(heard.body["tools"])])

    server = serve(adapter.server, decide=call_all)
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
    async with adapter.open(server.url, server.key) as make:
        answer = await ask(make(), tools=tools)
        again = assistant(*[use.to_wire() for use in answer.tool_uses])
        results = user(*[result(use.id, "done") for use in answer.tool_uses])
        await ask(make(), user("Call all."), again, results, tools=tools)

    assert [use.name for use in answer.tool_uses] == NAMES
    assert len({use.id for use in answer.tool_uses}) == len(NAMES)


@pytest.mark.parametrize("choice", [None, {"mode": "required", "name": "天気"}], ids=["free", "forced"])
async def test_the_model_learns_the_name_that_the_provider_cannot_have(
    adapter: Adapter, serve: Serve, choice: Wire | None
) -> None:
    def call(heard: Heard) -> Said:
        named = [name for name, _ in tools_of(heard.body.get("tools", []))] or ["天気"]
        return adapter.forced(named[0], {"at": "Tokyo"}) if choice else Said(calls=[Called(named[0], {"at": "Tokyo"})])

    server = serve(adapter.server, decide=call)
    schema = {**LOOK["inputSchema"], "required": ["at"], "additionalProperties": False}
    tools = [{"name": name, "description": "Tells it.", "inputSchema": schema} for name in ("天気", "地図")]
    async with adapter.open(server.url, server.key) as make:
        answer = await ask(make(), tools=tools, **({"toolChoice": choice} if choice else {}))

    assert [(use.name, use.input) for use in answer.tool_uses] == [("天気", {"at": "Tokyo"})]
    assert reached(server, "天気")
    assert reached(server, "Tells it.")
    assert choice is not None or reached(server, "地図")


async def test_a_conversation_may_have_calls_of_tools_that_are_not_on_offer(adapter: Adapter, serve: Serve) -> None:
    server = serve(adapter.server, Said(text="ok"))
    messages = [user("Read."), assistant(used("call_b", "files/read")), user(result("call_b", "marker-text"))]
    async with adapter.open(server.url, server.key) as make:
        assert (await ask(make(), *messages, tools=[ADD])).text == "ok"

    assert reached(server, "marker-text")


async def test_ids_of_other_providers_are_taken(adapter: Adapter, serve: Serve) -> None:
    """A host may change the model in a conversation."""
    server = serve(adapter.server, *[Said(text="ok")] * 4)
    async with adapter.open(server.url, server.key) as make:
        model = make()
        for id in ("functions.add:0", "a b", "ä" * 70, "x" * 200):
            messages = [user("Add."), assistant(used(id)), user(result(id, "marker-text"))]
            assert (await ask(model, *messages, tools=[ADD])).text == "ok", id
            assert reached(server, "marker-text"), id


SCHEMAS: dict[str, Wire] = {
    "nothing": {"type": "object"},
    "no type": {"type": "object", "properties": {"city": {"title": "City"}}, "required": ["city"]},
    "no properties": {"type": "object", "properties": {}, "additionalProperties": False},
    "references": {
        "type": "object",
        "properties": {
            "city": {"$ref": "#/$defs/City", "description": "Where."},
            "more": {"type": "array", "items": {"$ref": "#/$defs/City"}},
        },
        "required": ["city"],
        "$defs": {"City": {"type": "object", "properties": {"name": {"type": "string"}}, "title": "City"}},
    },
    "a reference to itself": {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    },
    "patterns": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "pattern": "^[A-Z]", "minLength": 1, "format": "uri", "examples": ["Rome"]},
            "count": {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 5, "default": 5},
        },
        "additionalProperties": False,
        "$schema": "http://json-schema.org/draft-07/schema#",
    },
    "nullable": {
        "type": "object",
        "properties": {
            "city": {"type": ["string", "null"]},
            "state": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "kind": {"enum": ["a", 1, None]},
            "fixed": {"const": "x"},
            "anything": {},
            "never": {"type": "array"},
        },
    },
    "alternatives at the top": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
        "anyOf": [{"required": ["city"]}, {"required": ["zip"]}],
        "allOf": [{"not": {"required": ["city", "zip"]}}, {"if": {"required": ["zip"]}, "then": {"maxProperties": 2}}],
    },
    "draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "city": {"$ref": "#/definitions/City"},
            "at": {"type": "array", "items": [{"type": "number"}, {"type": "number"}], "additionalItems": False},
            "above": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        },
        "required": ["city", "city"],
        "definitions": {"City": {"type": "object", "properties": {"in": {"$ref": "#/definitions/City"}}}},
    },
    "no schema": {
        "type": "object",
        "properties": {
            "city": {"type": "STRING", "maxLength": "80", "pattern": "(?i)[a-z"},
            "any": {"type": "any", "items": None, "additionalProperties": None},
            "none": {"type": None, "anyOf": [], "enum": [True, None]},
            "wrong": [7, None, {"$ref": "#/definitions/lost"}],
            "lost": {"$ref": "#/definitions/lost"},
            "remote": {"type": "array", "items": {"$ref": "https://a.example/city.json"}},
            "large": {"type": ["array", "null"], "default": 10**400},
        },
        "required": [True, "city"],
        "patternProperties": {"(": {}},
    },
    "a reference at the top": {"$ref": "#/definitions/Root", "definitions": {"Root": {"properties": {"city": True}}}},
}


@pytest.mark.parametrize("choice", [{"mode": "auto"}, {"mode": "required", "name": "find"}], ids=["auto", "one"])
async def test_schemas_are_cleaned_to_what_the_provider_takes(
    adapter: Adapter, serve: Serve, choice: Wire, subtests: pytest.Subtests
) -> None:
    """The server of the API refuses what it does not take. A property keeps its name."""
    said = Said(text="ok") if choice["mode"] == "auto" else adapter.forced("find", {"city": "Rome"})
    server = serve(adapter.server, *[said] * len(SCHEMAS))
    async with adapter.open(server.url, server.key) as make:
        model = make()
        for name, schema in SCHEMAS.items():
            with subtests.test(name):
                tool = {"name": "find", "description": "Finds. " * 300, "inputSchema": schema}
                await ask(model, tools=[tool], toolChoice=choice)
                assert "city" not in schema.get("properties", {}) or "'city'" in str(server.last)


BROKEN: dict[str, Wire] = {
    "image": {**IMAGE, "data": "no base64!"},
    "image, cut": {**IMAGE, "data": PNG[:-1]},
    "image, empty": {**IMAGE, "data": ""},
    "image, with a space": {**IMAGE, "data": f"{PNG[:8]} {PNG[9:]}"},
    "audio": {**AUDIO, "data": "a*b="},
    "PDF": resource(blob="====", mimeType="application/pdf"),
    "PDF, empty": resource(blob="", mimeType="application/pdf"),
}


async def test_what_is_not_base64_is_refused_from_the_user_and_named_from_a_tool(
    adapter: Adapter, serve: Serve, subtests: pytest.Subtests
) -> None:
    server = serve(adapter.server, decide=lambda heard: Said(text="ok"))
    async with adapter.open(server.url, server.key) as make:
        model = make(**adapter.audio)
        for name, block in BROKEN.items():
            if block["type"] != "resource":
                with subtests.test(name, sent_by="the user"), refused(server, "messages[0]: this model takes no "):
                    await ask(model, user(block))
        for name, block in BROKEN.items():
            with subtests.test(name, sent_by="a tool"):
                assert (await ask(model, *after("Here:", block), tools=[ADD])).text == "ok"
                assert reached(server, "this model takes no ")


NOT_TAKEN: dict[str, tuple[Wire, str]] = {  # with the beginning of the text that is in its place
    "SVG": (SVG, "[image/svg+xml, 6 bytes"),
    "no PNG": ({**IMAGE, "data": SVG["data"]}, "[image/png, 6 bytes"),
    "zip": (resource(blob="UEsDBA==", mimeType="application/zip"), "[application/zip, 4 bytes, file:///marker.txt"),
    "sound": ({**AUDIO, "data": SVG["data"], "mimeType": "audio/midi"}, "[audio/midi, 6 bytes"),
    "video": (resource(blob="GkXfow==", mimeType="video/x-matroska"), "[video/x-matroska, 4 bytes"),
    "no padding": ({**IMAGE, "data": PNG.rstrip("=")}, "[image/png, 14 bytes"),
    "URL of another type": ({**IMAGE, "data": f"data:image/gif;base64,{PNG}"}, "[image/png, "),
}


async def test_no_file_of_a_tool_ends_a_loop_or_the_prompts_after_it(
    adapter: Adapter, serve: Serve, subtests: pytest.Subtests
) -> None:
    """What the API does not take is a text with its type and size."""
    for name, (block, named) in NOT_TAKEN.items():
        with subtests.test(name):
            returned = CallToolResult.from_wire({"content": [TEXT, block]})
            tool = FunctionTool(partial(lambda result: result, returned), name="look")
            server = serve(adapter.server, Said(calls=[Called("look")]), Said(text="ok"), Said(text="again"))
            async with adapter.open(server.url, server.key) as make:
                done = await run_tool_loop(make(**adapter.audio), "Look.", tools=[tool])
                assert (done.text, reached(server, named)) == ("ok", True)
                messages = [*done.messages, UserMessage("And now?")]
                done = await run_tool_loop(make(**adapter.audio), messages=messages, tools=[tool])

            assert (done.text, reached(server, named), reached(server, "marker-text")) == ("again", True, True)


async def test_what_a_server_sends_is_named_where_the_same_of_the_user_is_refused(
    adapter: Adapter, serve: Serve
) -> None:
    server = serve(adapter.server, Said(text="ok"))
    async with adapter.open(server.url, server.key) as make:
        with refused(server, "messages[0]: this model takes no image/svg+xml"):
            await ask(make(), user(SVG))
        answer = await make()(replace(request(user(SVG), assistant("It is red."), user("Is it?")), session=object()))

    assert (answer.text, reached(server, "[image/svg+xml, 6 bytes: this model takes no image/svg+xml]")) == ("ok", True)


@pytest.mark.parametrize(
    "data",
    [f"{PNG[:8]}\r\n{PNG[8:]}\n", PNG.translate(str.maketrans("+/", "-_")), f"data:image/png;base64,{PNG}"],
    ids=["lines", "URL-safe", "data URL"],
)
async def test_base64_of_mime_and_of_urls_is_written_as_the_provider_takes_it(
    adapter: Adapter, serve: Serve, data: str
) -> None:
    server = serve(adapter.server, Said(text="ok"), Said(text="ok"))
    image = {**IMAGE, "data": data}
    async with adapter.open(server.url, server.key) as make:
        await ask(make(), user(image))
        asked = str(server.last)
        await ask(make(), *after(image), tools=[ADD])

    assert PNG in asked
    assert PNG in str(server.last)


def nested(levels: int, inner: object, name: str) -> Wire:
    """An object with objects in it, under *name* and ``properties`` by turns: a schema, if *name* is a property's."""
    whole: Any = inner
    for level in range(levels - 1):
        whole = {"type": "object", "properties": {name: whole}} if level % 2 else {name: whole}
    return {"type": "object", "properties": {name: whole}}


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("levels", [20, 100, 160, 170, 250, 1000, 20_000])
async def test_what_is_nested_too_deep_is_refused(adapter: Adapter, serve: Serve, levels: int, choice: str) -> None:
    """The schema of a tool that is required, and the arguments of a call. What is not refused is taken; another tool is left
    out, and what a tool returned is named.
    """
    server = serve(adapter.server, decide=lambda heard: Said(text="ok"))
    schema = nested(levels, {}, "marker")
    messages = [user("Add."), assistant(used("call_a", **schema)), user(result("call_a", "done"))]
    requests: dict[str, tuple[list[Wire], Wire]] = {
        "the tool 'deep'": ([], {"tools": [{"name": "deep", "inputSchema": schema}], "toolChoice": {"mode": choice}}),
        "messages[1]": (messages, {"tools": [ADD]}),
        "messages[2]": (after(structuredContent=schema), {"tools": [ADD]}),
    }
    refusals: dict[str, str] = {}
    async with adapter.open(server.url, server.key) as make:
        model = make()
        with fail_after(25):
            for where, (conversation, params) in requests.items():
                try:
                    await ask(model, *conversation, **params)
                except InputRefused as refusal:
                    refusals[where] = str(refusal)
                except SamplingError:  # the model has to call the tool, and says something else
                    assert choice == "required"
                if where == "the tool 'deep'" and where not in refusals and levels > 200:
                    assert not reached(server, "deep")

    if levels < 100 or levels > 200:
        deep = ["the tool 'deep'", "messages[1]"] if choice == "required" else ["messages[1]"]
        assert list(refusals) == ([] if levels < 100 else deep)
    for where, said in refusals.items():
        assert said.startswith(f"{where}: this model takes no ")
        assert "deep" in said or "levels" in said
