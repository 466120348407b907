"""`@modelcontextprotocol/server-everything`, which has something of each feature, over stdio and Streamable HTTP."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from pathlib import Path
from typing import TypeAlias

import pytest
from anyio import Event, fail_after

from mcp_host import (
    Change,
    Client,
    Elicitation,
    FormRequest,
    Sampling,
    Stdio,
    StreamableHttp,
    UrlRequest,
    always,
)
from mcp_host.errors import CallerError, RequestTimeout, ServerError, UrlElicitationRequired
from mcp_host.testing import ScriptedModel
from mcp_host.types import (
    Annotations,
    BlobResourceContents,
    CallToolResult,
    Completion,
    ElicitRequestURLParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ListedCapability,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    PromptMessage,
    PromptReference,
    ResourceLink,
    ResourceListChangedNotification,
    ResourcesCapability,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    SamplingMessage,
    TasksCapability,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from tests.interop.processes import HttpServer, everything

AnyTransport: TypeAlias = Stdio | StreamableHttp

IN_TIME = 30.0  # seconds for a test; each takes a few at most when the machine is idle

DOCUMENT = "demo://resource/static/document/features.md"

ALWAYS_THERE = [
    "echo",
    "get-annotated-message",
    "get-env",
    "get-resource-links",
    "get-resource-reference",
    "get-structured-content",
    "get-sum",
    "get-tiny-image",
    "gzip-file-as-resource",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "trigger-long-running-operation",
]
FOR_THIS_CLIENT = [  # which the server offers to a client that declared roots, elicitation and sampling
    "get-roots-list",
    "trigger-elicitation-request",
    "trigger-url-elicitation",
    "trigger-sampling-request",
    "simulate-research-query",
]


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, mark: str) -> AnyTransport:
    if request.param == "stdio":
        return Stdio(everything("stdio", mark))
    http: HttpServer = request.getfixturevalue("everything_http")
    return StreamableHttp(http.url)


class Changes:
    """An *on_change* that keeps the changes of one method; *any* is set at the first."""

    def __init__(self, method: str) -> None:
        self.kept: list[Change] = []
        self.any = Event()
        self._method = method

    async def __call__(self, change: Change) -> None:
        if change.method == self._method:
            self.kept.append(change)
            self.any.set()


class Logs:
    """An *on_log* that keeps every line; *enough* is set when one contains *wanted*."""

    def __init__(self, wanted: str) -> None:
        self.lines: list[str] = []
        self.enough = Event()
        self._wanted = wanted

    async def __call__(self, message: LoggingMessageNotificationParams) -> None:
        self.lines.append(f"{message.level}: {message.data}")
        if self._wanted in self.lines[-1]:
            self.enough.set()


async def decline_form(request: FormRequest) -> ElicitResult:
    return request.decline()


async def decline_url(request: UrlRequest) -> ElicitResult:
    return request.decline()


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


async def test_the_handshake_tells_who_the_server_is_and_what_it_offers(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            await client.ping()
            offered, instructions = client.server_capabilities, client.instructions
            facts = (client.protocol_version, client.server_info, client.sampling_mode, client.warnings)

    assert facts == (
        "2025-11-25",
        Implementation(name="mcp-servers/everything", title="Everything Reference Server", version="2.0.0"),
        "none",
        [],
    )
    assert (offered.logging, offered.completions) == ({}, {})
    assert (offered.tools, offered.prompts) == (
        ListedCapability(list_changed=True),
        ListedCapability(list_changed=True),
    )
    assert offered.resources == ResourcesCapability(subscribe=True, list_changed=True)
    assert offered.tasks == TasksCapability(list={}, cancel={}, requests={"tools": {"call": {}}})
    assert instructions is not None
    assert instructions.startswith("# Everything Server")


async def test_every_tool_is_listed_and_read_whole(server: AnyTransport) -> None:
    client = Client(
        server,
        sampling=Sampling(with_tools=ScriptedModel(), approve=always),
        elicitation=Elicitation(form=decline_form, url=decline_url),
        roots=[],
    )
    with fail_after(IN_TIME):
        async with client:
            tools = {tool.name: tool for tool in await client.list_tools()}

    assert list(tools) == ALWAYS_THERE + FOR_THIS_CLIENT
    assert client.warnings == []
    assert tools["get-sum"].annotations == ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    execution = tools["simulate-research-query"].execution
    assert execution is not None
    assert execution.task_support == "required"
    assert tools["get-structured-content"].output_schema is not None
    assert all(tool.input_schema["type"] == "object" for tool in tools.values())


async def test_tools_return_text_images_and_annotations(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            echo = await client.call_tool("echo", {"message": "Grüße, 世界 \u2028 😀"})
            total = await client.call_tool("get-sum", {"a": 2, "b": 3.5})
            image = await client.call_tool("get-tiny-image")
            message = await client.call_tool("get-annotated-message", {"messageType": "error", "includeImage": True})

    assert echo == CallToolResult(content=[TextContent(text="Echo: Grüße, 世界 \u2028 😀")])
    assert texts(total) == ["The sum of 2 and 3.5 is 5.5."]
    before, picture, after = image.content
    assert isinstance(picture, ImageContent)
    assert picture.mime_type == "image/png"
    assert b64decode(picture.data).startswith(b"\x89PNG")
    assert texts(image) == [block.text for block in (before, after) if isinstance(block, TextContent)]
    words, annotated = message.content
    assert words == TextContent(
        text="Error: Operation failed", annotations=Annotations(priority=1, audience=["user", "assistant"])
    )
    assert annotated == ImageContent(
        data=picture.data, mime_type="image/png", annotations=Annotations(priority=0.5, audience=["user"])
    )


async def test_tools_return_resources_and_links_to_them(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            carried = await client.call_tool("get-resource-reference", {"resourceType": "Text", "resourceId": 7})
            linked = await client.call_tool("get-resource-links", {"count": 2})

    embedded = carried.content[1]
    assert isinstance(embedded, EmbeddedResource)
    assert isinstance(embedded.resource, TextResourceContents)
    assert embedded.resource.uri == "demo://resource/dynamic/text/7"
    assert linked.content[1:] == [
        ResourceLink(
            name="Blob Resource 1",
            uri="demo://resource/dynamic/blob/1",
            description="Resource 1: plaintext resource",
            mime_type="text/plain",
        ),
        ResourceLink(
            name="Text Resource 2",
            uri="demo://resource/dynamic/text/2",
            description="Resource 2: plaintext resource",
            mime_type="text/plain",
        ),
    ]


async def test_structured_content_is_checked_against_the_listed_schema(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            await client.list_tools()
            result = await client.call_tool("get-structured-content", {"location": "Chicago"})

    weather = {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
    assert result.structured_content == weather
    assert [json.loads(text) for text in texts(result)] == [weather]


async def test_a_tool_that_refuses_its_arguments_returns_an_error_result(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            unknown = await client.call_tool("no-such-tool")
            wrong = await client.call_tool("echo", {"massage": "?"})

    assert unknown == CallToolResult(
        content=[TextContent(text="MCP error -32602: Tool no-such-tool not found")], is_error=True
    )
    assert wrong.is_error
    assert "Invalid arguments for tool echo" in texts(wrong)[0]


async def test_a_tool_that_runs_only_as_a_task_is_not_called(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            await client.list_tools()
            with pytest.raises(CallerError, match="simulate-research-query"):
                await client.call_tool("simulate-research-query", {"topic": "tides"})


async def test_progress_arrives_in_order_and_before_the_result(server: AnyTransport) -> None:
    reports: list[tuple[float, float | None]] = []

    async def on_progress(report: ProgressNotificationParams) -> None:
        reports.append((report.progress, report.total))

    with fail_after(IN_TIME):
        async with Client(server) as client:
            arguments = {"duration": 0.5, "steps": 5}
            result = await client.call_tool("trigger-long-running-operation", arguments, on_progress=on_progress)

    assert reports == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert texts(result) == ["Long running operation completed. Duration: 0.5 seconds, Steps: 5."]


async def test_a_call_that_takes_too_long_does_not_harm_the_next(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("trigger-long-running-operation", {"duration": 2, "steps": 1}, timeout=0.2)
            echo = await client.call_tool("echo", {"message": "still here"})

    assert texts(echo) == ["Echo: still here"]


async def test_resources_are_listed_and_read(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            resources = {resource.uri: resource for resource in await client.list_resources()}
            templates = await client.list_resource_templates()
            document = await client.read_resource(DOCUMENT)
            blob = await client.read_resource("demo://resource/dynamic/blob/3")
            with pytest.raises(ServerError, match="not found"):
                await client.read_resource("demo://nowhere")

    assert (resources[DOCUMENT].name, resources[DOCUMENT].mime_type) == ("features.md", "text/markdown")
    assert [template.uri_template for template in templates] == [
        "demo://resource/dynamic/text/{resourceId}",
        "demo://resource/dynamic/blob/{resourceId}",
    ]
    (text,) = document.contents
    assert isinstance(text, TextResourceContents)
    assert (text.uri, text.mime_type) == (DOCUMENT, "text/markdown")
    assert text.text.startswith("# Everything Server")
    (bytes_,) = blob.contents
    assert isinstance(bytes_, BlobResourceContents)
    assert b64decode(bytes_.blob).startswith(b"Resource 3: This is a base64 blob")


async def test_a_subscribed_resource_announces_its_changes(server: AnyTransport) -> None:
    changes = Changes("notifications/resources/updated")
    with fail_after(IN_TIME):
        async with Client(server, on_change=changes) as client:
            await client.subscribe_resource(DOCUMENT)
            await client.call_tool("toggle-subscriber-updates")
            await changes.any.wait()
            await client.call_tool("toggle-subscriber-updates")
            await client.unsubscribe_resource(DOCUMENT)

    updated = ResourceUpdatedNotification(params=ResourceUpdatedNotificationParams(uri=DOCUMENT))
    assert set(changes.kept) == {updated}


async def test_a_resource_that_a_tool_makes_is_announced_and_can_be_read(server: AnyTransport) -> None:
    changes = Changes("notifications/resources/list_changed")
    arguments = {"name": "tides.gz", "data": "data:text/plain,high%20and%20low", "outputType": "resourceLink"}
    with fail_after(IN_TIME):
        async with Client(server, on_change=changes) as client:
            result = await client.call_tool("gzip-file-as-resource", arguments)
            await changes.any.wait()
            read = await client.read_resource("demo://resource/session/tides.gz")

    assert [type(change) for change in changes.kept] == [ResourceListChangedNotification]
    link = ResourceLink(name="tides.gz", uri="demo://resource/session/tides.gz", mime_type="application/gzip")
    assert result.content == [link]
    (contents,) = read.contents
    assert isinstance(contents, BlobResourceContents)
    assert gzip.decompress(b64decode(contents.blob)) == b"high and low"


async def test_prompts_are_listed_and_filled_in(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server) as client:
            prompts = {prompt.name: prompt for prompt in await client.list_prompts()}
            simple = await client.get_prompt("simple-prompt")
            filled = await client.get_prompt("args-prompt", {"city": "Oslo", "state": "Norway"})
            embedding = await client.get_prompt("resource-prompt", {"resourceType": "Text", "resourceId": "4"})
            with pytest.raises(ServerError, match="city"):
                await client.get_prompt("args-prompt", {})

    assert list(prompts) == ["simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"]
    arguments = prompts["args-prompt"].arguments or []
    assert [(argument.name, argument.required) for argument in arguments] == [("city", True), ("state", False)]
    assert simple.messages == [
        PromptMessage(role="user", content=TextContent(text="This is a simple prompt without arguments."))
    ]
    assert filled.messages == [PromptMessage(role="user", content=TextContent(text="What's weather in Oslo, Norway?"))]
    content = embedding.messages[1].content
    assert isinstance(content, EmbeddedResource)
    assert content.resource.uri == "demo://resource/dynamic/text/4"


async def test_arguments_are_completed_in_the_light_of_those_decided(server: AnyTransport) -> None:
    prompt = PromptReference(name="completable-prompt")
    template = ResourceTemplateReference(uri="demo://resource/dynamic/text/{resourceId}")
    with fail_after(IN_TIME):
        async with Client(server) as client:
            department = await client.complete(prompt, "department", "S")
            name = await client.complete(prompt, "name", "", context={"department": "Sales"})
            number = await client.complete(template, "resourceId", "12")

    assert department.completion == Completion(values=["Sales", "Support"], total=2, has_more=False)
    assert name.completion == Completion(values=["David", "Eve", "Frank"], total=3, has_more=False)
    assert number.completion == Completion(values=["12"], total=1, has_more=False)


async def test_the_log_level_decides_what_is_heard(server: AnyTransport) -> None:
    logs = Logs("document/startup.md")
    with fail_after(IN_TIME):
        async with Client(server, on_log=logs) as client:
            await client.set_log_level("error")
            await client.subscribe_resource(DOCUMENT)  # which the server logs as info
            await client.set_log_level("info")
            await client.subscribe_resource("demo://resource/static/document/startup.md")
            await logs.enough.wait()

    (line,) = logs.lines
    assert line.startswith("info: Received Subscribe Resource request for URI: demo://resource/static/document/startup")


async def test_a_sampling_request_without_tools_is_answered_by_the_handler_with_tools(server: AnyTransport) -> None:
    model = ScriptedModel("High tide at noon.", name="a-model")
    with fail_after(IN_TIME):
        async with Client(server, sampling=Sampling(with_tools=model, approve=always)) as client:
            mode = client.sampling_mode
            result = await client.call_tool("trigger-sampling-request", {"prompt": "the tide?", "maxTokens": 50})

    (request,) = model.requests
    question = "Resource trigger-sampling-request context: the tide?"
    assert mode == "with_tools"
    assert request.messages == [SamplingMessage(role="user", content=TextContent(text=question))]
    assert (request.system_prompt, request.max_tokens, request.temperature) == (
        "You are a helpful test server.",
        50,
        0.7,
    )
    assert (request.tools, request.server) == ([], "mcp-servers/everything")
    (text,) = texts(result)
    assert json.loads(text.removeprefix("LLM sampling result:")) == {
        "role": "assistant",
        "content": {"type": "text", "text": "High tide at noon."},
        "model": "a-model",
        "stopReason": "endTurn",
    }


async def test_a_form_is_filled_in_with_its_defaults(server: AnyTransport) -> None:
    async def fill_in(request: FormRequest) -> ElicitResult:
        return request.accept(name="Ada", email="ada@example.org", integer=7)

    with fail_after(IN_TIME):
        async with Client(server, elicitation=Elicitation(form=fill_in)) as client:
            result = await client.call_tool("trigger-elicitation-request")

    raw = texts(result)[-1]
    assert json.loads(raw[raw.index("{") :]) == {
        "action": "accept",
        "content": {
            "name": "Ada",
            "email": "ada@example.org",
            "integer": 7,
            "firstLine": "It was a dark and stormy night.",
            "number": 3.14,
            "untitledSingleSelectEnum": "Monica",
            "untitledMultipleSelectEnum": ["Guitar"],
            "titledSingleSelectEnum": "hero-1",
            "titledMultipleSelectEnum": ["fish-1"],
            "legacyTitledEnum": "pet-1",
        },
    }


async def test_a_form_can_be_declined(server: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(server, elicitation=Elicitation(form=decline_form)) as client:
            result = await client.call_tool("trigger-elicitation-request")

    assert texts(result)[0] == "❌ User declined to provide the requested information."


async def test_a_user_is_sent_to_a_url_by_request_or_by_error(server: AnyTransport) -> None:
    visits: list[tuple[str, str | None]] = []

    async def visit(request: UrlRequest) -> ElicitResult:
        visits.append((request.url, request.elicitation_id))
        return request.accept()

    url = {"url": "https://example.org/consent", "elicitationId": "visit-1"}
    with fail_after(IN_TIME):
        async with Client(server, elicitation=Elicitation(url=visit)) as client:
            asked = await client.call_tool("trigger-url-elicitation", url)
            with pytest.raises(UrlElicitationRequired) as required:
                await client.call_tool("trigger-url-elicitation", {**url, "errorPath": True})

    assert texts(asked)[0].startswith("✅ User completed the URL elicitation flow.")
    assert visits == [("https://example.org/consent", "visit-1")]
    (elicitation,) = required.value.elicitations
    assert elicitation == ElicitRequestURLParams(
        url="https://modelcontextprotocol.io",
        message="Open this link to satisfy the prerequisite, then retry the request.",
        elicitation_id=elicitation.elicitation_id,
    )


async def test_the_server_learns_the_roots_and_their_changes(server: AnyTransport, tmp_path: Path) -> None:
    logs = Logs("Roots updated: 2 root(s)")
    other = tmp_path / "other folder"
    with fail_after(IN_TIME):
        async with Client(server, roots=[tmp_path], on_log=logs) as client:
            first = await client.call_tool("get-roots-list")
            await client.set_roots([tmp_path, other])
            await logs.enough.wait()
            second = await client.call_tool("get-roots-list")

    assert f"1. Unnamed Root\n   URI: {tmp_path.as_uri()}\n" in texts(first)[0]
    assert f"2. Unnamed Root\n   URI: {other.as_uri()}\n" in texts(second)[0]


async def test_the_environment_of_a_child_is_the_safe_list_and_what_was_given(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "s3cret")
    with fail_after(IN_TIME):
        async with Client(Stdio(everything("stdio", mark), env={"GIVEN": "yes"})) as client:
            environment = json.loads(texts(await client.call_tool("get-env"))[0])

    assert environment["GIVEN"] == "yes"
    assert "SECRET_OF_THE_HOST" not in environment
