"""`@modelcontextprotocol/server-everything`, which has something of each feature, over stdio and Streamable HTTP."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode

import pytest
from anyio import fail_after

from mcp_host import (
    Client,
    Elicitation,
    FormRequest,
    Sampling,
    Stdio,
    UrlRequest,
    always,
)
from mcp_host.errors import CallerError, RequestTimeout, ServerError
from mcp_host.testing import ScriptedModel
from mcp_host.types import (
    Annotations,
    BlobResourceContents,
    CallToolResult,
    Completion,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ListedCapability,
    ProgressNotificationParams,
    PromptMessage,
    PromptReference,
    ResourceLink,
    ResourceListChangedNotification,
    ResourcesCapability,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    TasksCapability,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from tests.interop.heard import Changes, Logs, texts
from tests.interop.processes import AnyTransport, everything_command

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


async def decline_form(request: FormRequest) -> ElicitResult:
    return request.decline()


async def decline_url(request: UrlRequest) -> ElicitResult:
    return request.decline()


async def test_the_handshake_has_the_servers_name_and_capabilities(everything: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(everything) as client:
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


async def test_every_tool_is_listed_and_read_whole(everything: AnyTransport) -> None:
    client = Client(
        everything,
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


async def test_tools_return_text_images_and_annotations(everything: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(everything) as client:
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


async def test_tools_return_resources_and_links_to_them(everything: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(everything) as client:
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


async def test_structured_content_is_checked_against_the_listed_schema(everything: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(everything) as client:
            await client.list_tools()
            result = await client.call_tool("get-structured-content", {"location": "Chicago"})

    weather = {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
    assert result.structured_content == weather
    assert [json.loads(text) for text in texts(result)] == [weather]


async def test_a_tool_that_refuses_its_arguments_returns_an_error_result(everything: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(everything) as client:
            unknown = await client.call_tool("no-such-tool")
            wrong = await client.call_tool("echo", {"massage": "?"})

    assert unknown == CallToolResult(
        content=[TextContent(text="MCP error -32602: Tool no-such-tool not found")], is_error=True
    )
    assert wrong.is_error
    assert "Invalid arguments for tool echo" in texts(wrong)[0]


async def test_a_tool_that_runs_only_as_a_task_is_not_called(everything: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(everything) as client:
            await client.list_tools()
            with pytest.raises(CallerError, match="simulate-research-query"):
                await client.call_tool("simulate-research-query", {"topic": "tides"})


async def test_progress_arrives_in_order_and_before_the_result(everything: AnyTransport) -> None:
    reports: list[tuple[float, float | None]] = []

    async def on_progress(report: ProgressNotificationParams) -> None:
        reports.append((report.progress, report.total))

    with fail_after(IN_TIME):
        async with Client(everything) as client:
            arguments = {"duration": 0.5, "steps": 5}
            result = await client.call_tool("trigger-long-running-operation", arguments, on_progress=on_progress)

    assert reports == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert texts(result) == ["Long running operation completed. Duration: 0.5 seconds, Steps: 5."]


async def test_a_call_that_takes_too_long_does_not_harm_the_next(everything: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(everything) as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("trigger-long-running-operation", {"duration": 2, "steps": 1}, timeout=0.2)
            echo = await client.call_tool("echo", {"message": "still here"})

    assert texts(echo) == ["Echo: still here"]


async def test_resources_are_listed_and_read(everything: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(everything) as client:
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


async def test_a_subscribed_resource_announces_its_changes(everything: AnyTransport) -> None:
    changes = Changes("notifications/resources/updated")
    with fail_after(IN_TIME):
        async with Client(everything, on_change=changes) as client:
            await client.subscribe_resource(DOCUMENT)
            await client.call_tool("toggle-subscriber-updates")
            await changes.any.wait()
            await client.call_tool("toggle-subscriber-updates")
            await client.unsubscribe_resource(DOCUMENT)

    updated = ResourceUpdatedNotification(params=ResourceUpdatedNotificationParams(uri=DOCUMENT))
    assert set(changes.kept) == {updated}


async def test_a_resource_that_a_tool_makes_is_announced_and_can_be_read(everything: AnyTransport) -> None:
    changes = Changes("notifications/resources/list_changed")
    arguments = {"name": "tides.gz", "data": "data:text/plain,high%20and%20low", "outputType": "resourceLink"}
    with fail_after(IN_TIME):
        async with Client(everything, on_change=changes) as client:
            result = await client.call_tool("gzip-file-as-resource", arguments)
            await changes.any.wait()
            read = await client.read_resource("demo://resource/session/tides.gz")

    assert [type(change) for change in changes.kept] == [ResourceListChangedNotification]
    link = ResourceLink(name="tides.gz", uri="demo://resource/session/tides.gz", mime_type="application/gzip")
    assert result.content == [link]
    (contents,) = read.contents
    assert isinstance(contents, BlobResourceContents)
    assert gzip.decompress(b64decode(contents.blob)) == b"high and low"


async def test_prompts_are_listed_and_filled_in(everything: AnyTransport) -> None:
    with fail_after(IN_TIME):
        async with Client(everything) as client:
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


async def test_completion_uses_the_arguments_given_so_far(everything: AnyTransport) -> None:
    prompt = PromptReference(name="completable-prompt")
    template = ResourceTemplateReference(uri="demo://resource/dynamic/text/{resourceId}")
    with fail_after(IN_TIME):
        async with Client(everything) as client:
            department = await client.complete(prompt, "department", "S")
            name = await client.complete(prompt, "name", "", context={"department": "Sales"})
            number = await client.complete(template, "resourceId", "12")

    assert department.completion == Completion(values=["Sales", "Support"], total=2, has_more=False)
    assert name.completion == Completion(values=["David", "Eve", "Frank"], total=3, has_more=False)
    assert number.completion == Completion(values=["12"], total=1, has_more=False)


async def test_only_messages_from_the_log_level_on_arrive(everything: AnyTransport) -> None:
    logs = Logs("document/startup.md")
    with fail_after(IN_TIME):
        async with Client(everything, on_log=logs) as client:
            await client.set_log_level("error")
            await client.subscribe_resource(DOCUMENT)  # which the server logs as info
            await client.set_log_level("info")
            await client.subscribe_resource("demo://resource/static/document/startup.md")
            await logs.enough.wait()

    (line,) = logs.lines
    assert line.startswith("info: Received Subscribe Resource request for URI: demo://resource/static/document/startup")


async def test_the_environment_of_a_child_is_the_safe_list_and_what_was_given(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "s3cret")
    with fail_after(IN_TIME):
        async with Client(Stdio(everything_command("stdio", mark), env={"GIVEN": "yes"})) as client:
            environment = json.loads(texts(await client.call_tool("get-env"))[0])

    assert environment["GIVEN"] == "yes"
    assert "SECRET_OF_THE_HOST" not in environment
