"""What servers on both official SDKs ask of their client, in either era: sampling with tools first of all."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import Event, fail_after

from mcp_host import (
    Allow,
    Client,
    Deny,
    Elicitation,
    FormRequest,
    OuterCall,
    Sampling,
    SamplingRequest,
    Stdio,
    StreamableHttp,
    ToolCall,
    always,
)
from mcp_host.errors import InputNotGiven, InputRefused, MissingRequiredClientCapability, ServerError
from mcp_host.sampling import Approve
from mcp_host.testing import ScriptedModel
from mcp_host.types import (
    CreateMessageResult,
    ElicitResult,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from tests.interop.heard import all_heard, reported, texts
from tests.interop.processes import HttpServer, Peer, Sdk

IN_TIME = 30.0  # seconds for a test; each takes two at most when the machine is idle

PAIR = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
OFFERED = [
    Tool(name=name, description=f"{name.capitalize()} two numbers", input_schema=PAIR)
    for name in ("add", "multiply", *(f"keep{number}" for number in range(14)))
]


def said(role: str, *blocks: TextContent | ToolUseContent | ToolResultContent) -> SamplingMessage:
    return SamplingMessage.from_wire({"role": role, "content": [block.to_wire() for block in blocks]})


def ran(id: str, text: str) -> ToolResultContent:
    return ToolResultContent(tool_use_id=id, content=[TextContent(text=text)])


async def test_a_dialogue_of_three_turns_with_tools_ends_with_the_final_text(peer: Peer) -> None:
    """Two tools at once, one that needs what they said, and an answer: the same for the server's tool in each era."""
    model = ScriptedModel(
        [ToolCall("add", {"a": 2, "b": 3}), ToolCall("multiply", {"a": 4, "b": 5})],
        [ToolCall("add", {"a": 5, "b": 20})],
        "25.",
        name="a-model",
    )
    with fail_after(IN_TIME):
        async with Client(peer.transport, era=peer.era, sampling=Sampling(with_tools=model, approve=always)) as client:
            told = reported(await client.call_tool("calculate", {"question": "2+3 and 4*5, in all?"}))
            mode, warnings = client.sampling_mode, client.warnings

    first, _, last = model.requests
    sum_, product, total = [
        block for message in last.messages for block in message.content if isinstance(block, ToolUseContent)
    ]
    assert first.outer is not None
    assert len({sum_.id, product.id, total.id}) == 3
    assert (first.tools, first.tool_choice, first.max_tokens) == (OFFERED, ToolChoice(mode="auto"), 500)
    assert first.server_info is not None
    assert (first.system_prompt, first.server_info.name, mode, warnings) == (
        "Use the calculator.",
        "both-eras",
        "with_tools",
        [],
    )
    inferred = peer.shakes_hands and isinstance(peer.transport, Stdio)  # nothing else says which call it is for
    assert first.outer == OuterCall(
        "tools/call", "calculate", first.outer.request_id, call_id=first.outer.call_id, inferred=inferred
    )
    two = said(
        "assistant",
        ToolUseContent(id=sum_.id, name="add", input={"a": 2, "b": 3}),
        ToolUseContent(id=product.id, name="multiply", input={"a": 4, "b": 5}),
    )
    one = said("assistant", ToolUseContent(id=total.id, name="add", input={"a": 5, "b": 20}))
    assert last.messages == [
        said("user", TextContent(text="2+3 and 4*5, in all?")),
        two,
        said("user", ran(sum_.id, "5"), ran(product.id, "20")),
        one,
        said("user", ran(total.id, "25")),
    ]
    assert told == {
        "answers": [
            {**two.to_wire(), "model": "a-model", "stopReason": "toolUse"},
            {**one.to_wire(), "model": "a-model", "stopReason": "toolUse"},
            {**said("assistant", TextContent(text="25.")).to_wire(), "model": "a-model", "stopReason": "endTurn"},
        ],
        "ran": {sum_.id: "5", product.id: "20", total.id: "25"},
    }


async def test_three_inputs_are_given_to_one_call(http_peer: Peer, tmp_path: Path) -> None:
    async def fill_in(request: FormRequest) -> ElicitResult:
        assert request.message == "Which tea?"
        return request.accept(size="large", count=2)

    model = ScriptedModel("Splendid.")
    with fail_after(IN_TIME):
        async with Client(
            http_peer.transport,
            era=http_peer.era,
            sampling=Sampling(basic=model, approve=always),
            elicitation=Elicitation(form=fill_in),
            roots=[tmp_path],
        ) as client:
            told = reported(await client.call_tool("gather", {"what": "tea"}))

    (request,) = model.requests
    assert request.messages == [said("user", TextContent(text="Is tea any good?"))]
    assert told == {
        "order": {"action": "accept", "content": {"size": "large", "count": 2}},
        "opinion": {"type": "text", "text": "Splendid."},
        "roots": [{"uri": tmp_path.as_uri()}],
    }


async def test_the_input_requests_of_one_result_are_answered_concurrently(
    sdk: Sdk, both_eras_http: dict[Sdk, HttpServer], tmp_path: Path
) -> None:
    """The user is asked while the model thinks, and one more request brings all the answers."""
    http = both_eras_http[sdk]
    sampled = Event()

    async def fill_in(request: FormRequest) -> ElicitResult:
        await sampled.wait()
        return request.accept(size="small", count=1)

    async def answer(request: SamplingRequest) -> CreateMessageResult:
        sampled.set()
        return request.reply("Splendid.", model="a-model")

    before = http.count("heard tools/call")
    with fail_after(IN_TIME):
        async with Client(
            StreamableHttp(http.url),
            era="modern",
            sampling=Sampling(basic=answer, approve=always),
            elicitation=Elicitation(form=fill_in),
            roots=[tmp_path],
        ) as client:
            reported(await client.call_tool("gather", {"what": "tea"}))
            await all_heard(client, http)

    assert http.count("heard tools/call") == before + 2


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_the_server_gets_the_action_of_a_declined_or_cancelled_form(http_peer: Peer, action: str) -> None:
    async def refuse(request: FormRequest) -> ElicitResult:
        return request.decline() if action == "decline" else request.cancel()

    with fail_after(IN_TIME):
        async with Client(http_peer.transport, era=http_peer.era, elicitation=Elicitation(form=refuse)) as client:
            told = reported(await client.call_tool("order", {"what": "shirt"}))

    assert told == {"action": action}


async def test_prompts_and_resources_ask_for_a_signature(http_peer: Peer) -> None:
    asked: list[str] = []

    async def sign(request: FormRequest) -> ElicitResult:
        asked.append(request.message)
        return request.accept(name="Bo")

    with fail_after(IN_TIME):
        async with Client(http_peer.transport, era=http_peer.era, elicitation=Elicitation(form=sign)) as client:
            prompt = await client.get_prompt("ode", {"to": "Ann"})
            letter = await client.read_resource("letter://Ann")

    assert [message.content for message in prompt.messages] == [TextContent(text="An ode to Ann by Bo.")]
    assert [content.to_wire() for content in letter.contents] == [
        {"uri": "letter://Ann", "mimeType": "text/plain", "text": "Dear Ann, yours, Bo"}
    ]
    assert asked == ["Sign the ode to Ann?", "Sign the letter to Ann?"]


async def deny(request: SamplingRequest) -> Allow | Deny:
    return Deny("not today")


async def fail(request: SamplingRequest) -> CreateMessageResult:
    raise RuntimeError("the key is s3cret")


@pytest.mark.parametrize(
    ("approve", "why", "cause"),
    [
        (deny, "not today", InputRefused),
        (always, "this client's model failed: RuntimeError: the key is s3cret", RuntimeError),
    ],
    ids=["denied", "failed"],
)
async def test_missing_input_ends_the_call_with_the_reason(
    sdk: Sdk, both_eras_http: dict[Sdk, HttpServer], approve: Approve, why: str, cause: type[Exception]
) -> None:
    """The server is sent nothing more for that call, and goes on serving others."""
    http = both_eras_http[sdk]
    before = http.count("heard tools/call")
    with fail_after(IN_TIME):
        sampling = Sampling(with_tools=fail, approve=approve)
        async with Client(StreamableHttp(http.url), era="modern", sampling=sampling) as client:
            with pytest.raises(InputNotGiven) as ended:
                await client.call_tool("calculate", {"question": "2+3?"})
            await all_heard(client, http)

    assert str(ended.value) == f"tools/call: the server asks for 'sampling/createMessage' under 'turn': {why}"
    assert (ended.value.key, ended.value.method) == ("turn", "sampling/createMessage")
    assert isinstance(ended.value.__cause__, cause)
    assert http.count("heard tools/call") == before + 1


@pytest.mark.parametrize(
    ("approve", "why"), [(deny, "not today"), (always, "this client's model failed")], ids=["denied", "failed"]
)
async def test_a_request_of_the_server_that_is_refused_gets_the_reason(
    sdk: Sdk, both_eras_http: dict[Sdk, HttpServer], approve: Approve, why: str
) -> None:
    """And ends the call as it likes: the Python SDK 2.3.0 passes our error on, the TypeScript SDK 2.4.0 writes a result."""
    with fail_after(IN_TIME):
        sampling = Sampling(with_tools=fail, approve=approve)
        async with Client(StreamableHttp(both_eras_http[sdk].url), era="legacy", sampling=sampling) as client:
            try:
                told = texts(await client.call_tool("calculate", {"question": "2+3?"}))
            except ServerError as error:
                told = [error.message]

    passed_on = {"python": why, "typescript": f"Fulfilling input required by 'tools/call' failed: {why}"}
    assert told == [passed_on[sdk]]


async def test_a_missing_client_capability_is_named(sdk: Sdk, both_eras_http: dict[Sdk, HttpServer]) -> None:
    with fail_after(IN_TIME):
        async with Client(StreamableHttp(both_eras_http[sdk].url), era="modern") as client:
            with pytest.raises(MissingRequiredClientCapability) as sampling:
                await client.call_tool("summarize", {"text": "..."})
            with pytest.raises(MissingRequiredClientCapability) as form:
                await client.call_tool("order", {"what": "tea"})

    assert sampling.value.required_capabilities == {"sampling": {}}
    assert form.value.required_capabilities == {"elicitation": {"form": {}}}


async def test_tools_for_a_basic_handler_reach_no_model(sdk: Sdk, both_eras_http: dict[Sdk, HttpServer]) -> None:
    """The TypeScript SDK 2.4.0 holds the request back. The Python SDK 2.3.0 does so only for what its resolvers ask."""
    model = ScriptedModel("never")
    with fail_after(IN_TIME):
        sampling = Sampling(basic=model, approve=always)
        async with Client(StreamableHttp(both_eras_http[sdk].url), era="modern", sampling=sampling) as client:
            with pytest.raises((InputNotGiven, MissingRequiredClientCapability)) as refused:
                await client.call_tool("calculate", {"question": "2+3?"})

    assert model.requests == []
    if isinstance(refused.value, MissingRequiredClientCapability):
        assert (sdk, refused.value.required_capabilities) == ("typescript", {"sampling": {"tools": {}}})
    else:
        assert (sdk, str(refused.value.__cause__)) == ("python", "tools: this client did not declare sampling.tools")
