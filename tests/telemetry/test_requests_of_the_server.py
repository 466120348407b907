"""The span of each request that a server makes, and the one of the model's answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from opentelemetry import baggage, context

from mcp_host import Allow, Deny, Elicitation, FormRequest, Handler, Sampling, SamplingRequest, always
from mcp_host.errors import InputNotGiven
from mcp_host.sampling import SamplingLimits
from mcp_host.testing import Context, ScriptedPeer, Server
from mcp_host.types import (
    AssistantMessage,
    AudioContent,
    CreateMessageResult,
    ElicitResult,
    ImageContent,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from tests.client.support import QUESTION, HangingModel
from tests.extent import on_both
from tests.telemetry.connecting import address, answering, called, everywhere, in_both_eras, network, reached, recorded
from tests.telemetry.recorder import Recorded, Recorder
from tests.telemetry.servers import server


async def say_paris(request: SamplingRequest) -> str:
    return "Paris"


PARIS = Sampling(with_tools=say_paris, approve=always)


def of_server(method: str, version: str, parent: str, **more: object) -> Recorded:
    return Recorded(name=method, kind="SERVER", attributes=asked(method, version, **more), parent=parent)


def asked(method: str, version: str, **more: object) -> dict[str, Any]:
    """The attributes of the server's request, which in 2026-07-28 is no message and has no id."""
    id = {"jsonrpc.request.id": "1"} if version == "2025-11-25" else {}
    return {"mcp.method.name": method, "mcp.protocol.version": version, **id, **more}


@on_both
@everywhere
async def test_a_sampling_request_has_a_server_span_with_a_chat_in_which_the_handler_runs(
    how: str, era: str, version: str, recorder: Recorder
) -> None:
    """Of a function that is async, or runs in a thread: here for servers in this process."""

    def answer(request: SamplingRequest) -> CreateMessageResult:
        with recorder.tracer.start_as_current_span("provider"):
            return request.reply("Paris", model="claude-5")

    async def answer_async(request: SamplingRequest) -> CreateMessageResult:
        await checkpoint()
        return answer(request)

    sampling = Sampling(with_tools=answer if how == "in-process" else answer_async, approve=always)
    async with reached(how) as transport, recorded(recorder, transport, era=era, sampling=sampling) as client:
        assert (await client.call_tool("ask")).text == "Paris"

    id = "2" if era == "legacy" else "3"  # its second request ended the call
    call = called("ask", version, id, **network(transport), **address(transport))
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "claude",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stop_sequences": ("\n",),
        "gen_ai.response.model": "claude-5",
        "gen_ai.response.finish_reasons": ("endTurn",),
    }
    assert recorder.spans() == [
        Recorded(name="tools/call ask", kind="CLIENT", attributes=call),
        of_server("sampling/createMessage", version, "tools/call ask", **network(transport)),
        Recorded(name="chat claude", kind="CLIENT", attributes=chat, parent="sampling/createMessage"),
        Recorded(name="provider", kind="INTERNAL", attributes={}, parent="chat claude"),
    ]


@in_both_eras
async def test_waiting_for_approval_is_no_time_of_the_model(era: str, version: str, recorder: Recorder) -> None:
    async def approve(request: SamplingRequest) -> Allow:
        with recorder.tracer.start_as_current_span("approval"):
            return Allow()

    async with recorded(recorder, server, era=era, sampling=Sampling(with_tools=say_paris, approve=approve)) as client:
        await client.call_tool("ask_simply")

    _, sampling, approval, chat = recorder.spans()
    assert (approval.name, approval.parent) == ("approval", sampling.name)
    assert chat == Recorded(
        name="chat",
        kind="CLIENT",
        attributes={"gen_ai.operation.name": "chat", "gen_ai.request.max_tokens": 50},
        parent="sampling/createMessage",
    )
    ended = {span.name: span.end_time or 0 for span in recorder.raw()}
    begun = {span.name: span.start_time or 0 for span in recorder.raw()}
    assert ended["approval"] <= begun["chat"]


async def deny(request: SamplingRequest) -> Deny:
    return Deny("not now")


async def refuse(request: SamplingRequest) -> CreateMessageResult:
    request.refuse("not now")


async def fail(request: SamplingRequest) -> CreateMessageResult:
    raise ValueError("no key\nfor the model")


@pytest.mark.parametrize(
    ("model", "approve", "code", "chats"),
    [
        (fail, deny, "-1", []),
        (refuse, always, "-1", ["-1"]),
        (fail, always, "-32603", ["ValueError"]),
    ],
    ids=["denied", "refused", "failed"],
)
@in_both_eras
async def test_a_request_that_gets_no_answer_has_an_error(
    era: str,
    version: str,
    model: Callable[[SamplingRequest], Awaitable[CreateMessageResult]],
    approve: Any,
    code: str,
    chats: list[str],
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with recorded(recorder, server, era=era, sampling=Sampling(with_tools=model, approve=approve)) as client:
        if era == "legacy":
            assert (await client.call_tool("ask_simply")).text == "refused"
        else:
            with pytest.raises(InputNotGiven):
                await client.call_tool("ask_simply")

    call, sampling, *found = recorder.spans()
    response = {"rpc.response.status_code": code} if era == "legacy" else {}
    assert sampling.attributes == asked("sampling/createMessage", version, **response, **{"error.type": code})
    assert [chat.attributes["error.type"] for chat in found] == chats
    assert {span.status for span in (sampling, *found)} == {"ERROR"}, "a reason may quote what is private"
    assert call.attributes.get("error.type") == (None if era == "legacy" else "mcp_host.errors.InputNotGiven")


@pytest.mark.parametrize(
    ("method", "code"), [("sampling/createMessage", "-32602"), ("weather/ask", "-32601"), ("roots/list", "-32601")]
)
async def test_a_request_that_the_server_should_not_have_made_is_no_error_of_ours(
    method: str, code: str, recorder: Recorder
) -> None:
    sampling = Sampling(with_tools=fail, approve=always, limits=SamplingLimits(max_tokens=10))
    async with recorded(recorder, server, era="legacy", sampling=sampling) as client:
        assert (await client.call_tool("send", {"method": method})).text == "refused"

    _, span = recorder.spans()
    assert span == of_server(method, "2025-11-25", "tools/call send", **{"rpc.response.status_code": code})


@in_both_eras
async def test_elicitation_and_roots_have_a_server_span_and_a_declined_form_is_no_error(
    era: str, version: str, recorder: Recorder
) -> None:
    async def decline(request: FormRequest) -> ElicitResult:
        return ElicitResult(action="decline")

    async with recorded(recorder, server, era=era, elicitation=Elicitation(form=decline), roots=[]) as client:
        assert (await client.call_tool("fill")).text == "decline"
        assert (await client.call_tool("roots")).text == "0"

    _, form, _, listed = recorder.spans()
    second = {"jsonrpc.request.id": "2"} if era == "legacy" else {}
    assert form == of_server("elicitation/create", version, "tools/call fill")
    assert listed == of_server("roots/list", version, "tools/call roots", **second)


async def test_input_requests_of_one_round_are_all_within_the_call(recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        requests = {key: {"method": "sampling/createMessage", "params": QUESTION} for key in ("one", "other")}
        await peer.reply(call, {"resultType": "input_required", "inputRequests": requests})
        await peer.reply(await peer.receive("tools/call"), {"content": []})

    peer = ScriptedPeer(script)
    async with recorded(recorder, peer, sampling=PARIS) as client:
        await client.call_tool("t")

    assert sorted((span.name, span.parent) for span in recorder.spans()[1:]) == [
        *[("chat", "sampling/createMessage")] * 2,
        *[("sampling/createMessage", "tools/call t")] * 2,
    ]
    sent = {call["params"]["_meta"]["traceparent"] for call in peer.received if call["method"] == "tools/call"}
    assert sent == {recorder.traceparent("tools/call t")}, "both requests of the call are in its span"


async def test_without_a_call_the_parent_is_the_span_in_which_the_client_connected(recorder: Recorder) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        await peer.request("sampling/createMessage", QUESTION)
        done.set()

    done = anyio.Event()
    with recorder.tracer.start_as_current_span("start"):
        async with recorded(recorder, script, era="legacy", sampling=PARIS):
            await done.wait()

    assert [(span.name, span.parent) for span in recorder.spans()] == [
        ("start", None),
        ("sampling/createMessage", "start"),
        ("chat", "sampling/createMessage"),
    ]


# The trace that the server names

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def asking(meta: object) -> ScriptedPeer:
    """A server that sends one sampling request within a call, with *meta*, or what that makes of the call's."""

    async def ask(peer: ScriptedPeer, call: dict[str, Any]) -> None:
        made = meta(call["params"]["_meta"]) if callable(meta) else meta
        await peer.request("sampling/createMessage", {**QUESTION, "_meta": made})
        await peer.reply(call, {"content": []})

    return ScriptedPeer(answering(ask))


async def call_it(peer: ScriptedPeer, recorder: Recorder, model: Handler = say_paris) -> None:
    sampling = Sampling(with_tools=model, approve=always)
    async with recorded(recorder, peer, era="legacy", sampling=sampling) as client:
        await client.call_tool("t")


async def test_the_span_that_the_server_names_is_the_parent_with_a_link_to_the_call(recorder: Recorder) -> None:
    peer = asking({"traceparent": REMOTE, "tracestate": "vendor=1"})
    await call_it(peer, recorder)

    _, sampling, chat = recorder.raw()[-3:]
    assert [(span.name, span.parent, span.links) for span in recorder.spans()] == [
        ("tools/call t", None, []),
        ("sampling/createMessage", "b7ad6b7169203331", ["tools/call t"]),
        ("chat", "sampling/createMessage", []),
    ]
    for span in (sampling, chat):
        found = span.get_span_context()
        assert found is not None
        assert f"{found.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
        assert found.trace_state.get("vendor") == "1"


async def test_a_server_that_names_no_valid_span_or_our_own_gets_the_call_as_the_parent_without_a_link() -> None:
    texts = (7, "nonsense", f"00-{'0' * 32}-{'0' * 16}-01")
    metas: list[object] = [None, [], *({"traceparent": text} for text in texts)]
    for meta in (*metas, lambda meta: {"traceparent": meta["traceparent"]}):
        recorder = Recorder()
        await call_it(asking(meta), recorder)

        _, sampling, *_ = recorder.spans()
        assert (sampling.name, sampling.parent, sampling.links) == ("sampling/createMessage", "tools/call t", []), meta


async def test_a_server_cannot_write_the_baggage_of_our_handlers(recorder: Recorder) -> None:
    async def answer(request: SamplingRequest) -> str:
        seen.append(dict(baggage.get_all()))
        return "Paris"

    seen: list[dict[str, object]] = []
    peer = asking({"traceparent": REMOTE, "baggage": "user=root,tenant=other"})
    token = context.attach(baggage.set_baggage("user", "ada"))
    try:
        await call_it(peer, recorder, answer)
    finally:
        context.detach(token)

    assert seen == [{"user": "ada"}]


async def test_what_a_server_sends_as_its_trace_is_never_logged(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenTelemetry's parsers log what they cannot read, as it is."""
    forged = "x" * 100_000 + "\x1b[2J\nINFO forged"
    states = (forged, "a=1,a=2", "a=1,", "A=1", "a=1,\x1b", "a@b@c=1", "a=" + "1" * 500 + ",b=2", "a=1" + ",b=1" * 40)
    for state in states:
        peer = asking({"traceparent": REMOTE, "tracestate": state, "baggage": forged, "X-B3-TraceId": forged})
        await call_it(peer, recorder)
        await call_it(asking({"traceparent": f"00-{forged}", "tracestate": state}), recorder)

    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []
    sampled = [span for span in recorder.raw() if span.name == "sampling/createMessage"]
    assert {len(context.trace_state) for span in sampled if (context := span.get_span_context())} == {0}


# Ends


@on_both
async def test_a_request_whose_call_has_ended_is_cancelled(recorder: Recorder) -> None:
    async def end_early(peer: ScriptedPeer, call: dict[str, Any]) -> None:
        await peer.send({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": QUESTION})
        await model.begun.wait()
        await peer.reply(call, {"content": []})

    model = HangingModel()
    sampling = Sampling(with_tools=model, approve=always)
    async with recorded(recorder, answering(end_early), era="legacy", sampling=sampling) as client:
        await client.call_tool("t")
        await model.ended.wait()

    call, sampled, chat = recorder.spans()
    assert call.status == "UNSET"
    assert [span.attributes["error.type"] for span in (sampled, chat)] == ["cancelled", "cancelled"]
    assert [span.status for span in (sampled, chat)] == ["ERROR", "ERROR"]


async def test_what_a_server_writes_is_cut_and_escaped(recorder: Recorder) -> None:
    """A span's name, and an attribute, has 128 characters of it at most. Unknown methods are requests, too."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        await peer.send({"jsonrpc": "2.0", "id": "i" * 500, "method": "m\x1b[2J" + "m" * 500})
        hints = {"modelPreferences": {"hints": [{"name": "h" * 500}]}}
        await peer.request("sampling/createMessage", {**QUESTION, **hints})
        done.set()

    done = anyio.Event()
    async with recorded(recorder, script, era="legacy", sampling=PARIS):
        await done.wait()

    unknown, _, chat = recorder.spans()
    method = "m\\x1b[2J" + "m" * 123 + "… (505 characters)"
    assert (unknown.name, unknown.attributes["mcp.method.name"]) == (method, method)
    assert unknown.attributes["jsonrpc.request.id"] == "i" * 128 + "… (500 characters)"
    assert chat.name == f"chat {chat.attributes['gen_ai.request.model']}" == "chat " + "h" * 128 + "… (500 characters)"


# Content


async def test_messages_are_recorded_only_on_demand_and_in_the_form_of_the_conventions() -> None:
    conversation = [
        UserMessage([TextContent(text="1 plus 2"), ImageContent(data="aGk=", mime_type="image/png")]),
        AssistantMessage(ToolUseContent(id="c1", name="add", input={"a": 1})),
        UserMessage(ToolResultContent(tool_use_id="c1", content=[TextContent(text="3")])),
    ]
    add = Tool(name="add", description="Add.", input_schema={"type": "object"})
    asker = Server("asker")

    @asker.tool
    async def solve(ctx: Context) -> str:
        return (await ctx.sample(messages=conversation, system_prompt="Be brief.", tools=[add], max_tokens=9)).text

    async def answer(request: SamplingRequest) -> CreateMessageResult:
        return request.reply("It is 3.")

    recorders = [Recorder(), Recorder()]
    for recorder, record_content in zip(recorders, (False, True), strict=True):
        sampling = Sampling(with_tools=answer, approve=always)
        async with recorded(recorder, asker, record_content=record_content, era="modern", sampling=sampling) as client:
            await client.call_tool("solve")

    without, chat = [recorder.spans()[-1].attributes for recorder in recorders]
    assert {name: chat[name] for name in chat.keys() - without.keys()} == {
        "gen_ai.system_instructions": '[{"type":"text","content":"Be brief."}]',
        "gen_ai.tool.definitions": '[{"type":"function","name":"add","description":"Add.","parameters":{"type":"object"}}]',
        "gen_ai.input.messages": (
            '[{"role":"user","parts":[{"type":"text","content":"1 plus 2"},'
            '{"type":"blob","modality":"image","mime_type":"image/png","content":"aGk="}]},'
            '{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"add","arguments":{"a":1}}]},'
            '{"role":"tool","parts":[{"type":"tool_call_response","id":"c1","response":[{"type":"text","text":"3"}]}]}]'
        ),
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"It is 3."}]}]',
    }
    assert "plus" not in str(recorders[0].spans())


async def test_a_question_with_sound_and_an_answer_of_text_alone_are_recorded_too(recorder: Recorder) -> None:
    asker = Server("asker")

    @asker.tool
    async def listen(ctx: Context) -> str:
        sound = UserMessage(AudioContent(data="aGk=", mime_type="audio/wav"))
        return (await ctx.sample(messages=[sound], max_tokens=9)).text

    async with recorded(recorder, asker, sampling=PARIS, record_content=True) as client:
        await client.call_tool("listen")

    sound = '{"type":"blob","modality":"audio","mime_type":"audio/wav","content":"aGk="}'
    assert recorder.spans()[-1].attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.input.messages": f'[{{"role":"user","parts":[{sound}]}}]',
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":"Paris"}]}]',
    }


async def test_an_answer_without_a_stop_reason_has_no_finish_reason(recorder: Recorder) -> None:
    async def answer(request: SamplingRequest) -> CreateMessageResult:
        return CreateMessageResult(content=TextContent(text="Paris"), model="m")

    async with recorded(recorder, server, sampling=Sampling(basic=answer, approve=always)) as client:
        await client.call_tool("ask_simply")

    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.max_tokens": 50, "gen_ai.response.model": "m"}
    assert recorder.spans()[-1].attributes == chat
