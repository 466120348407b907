"""What middleware learns besides requests and results: ids, the model's time, the ends of sessions."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mcp_host import Allow, Sampling, SamplingRequest, always
from mcp_host.errors import ConnectionClosed, ServerError
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest, EndedSession, Middleware, ServerRequest
from mcp_host.sampling import AroundModel, CallModel
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CreateMessageResult
from tests.client.support import EMPTY, QUESTION, TOOLS, Era, asking_server, connected
from tests.extent import on_both


def wrapping(around: AroundModel) -> Middleware:
    async def middleware(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        return await call_next(request.wrap_model(around) if isinstance(request, ServerRequest) else request)

    return middleware


async def test_functions_around_the_model_run_after_the_approval_the_first_outermost(era: Era) -> None:
    async def approve(request: SamplingRequest) -> Allow:
        seen.append("approved")
        return Allow()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        seen.append("model")
        return request.reply("Paris")

    def named(name: str) -> AroundModel:
        async def around(request: SamplingRequest, call_model: CallModel) -> CreateMessageResult | str:
            seen.append(f"{name} {request.messages[-1].text}")
            answer = await call_model()
            seen.append(f"{name} done")
            return answer

        return around

    seen: list[str] = []
    sampling = Sampling(with_tools=model, approve=approve)
    middleware = [wrapping(named("one")), wrapping(named("two"))]
    async with connected(asking_server(), era=era.version, sampling=sampling, middleware=middleware) as client:
        assert (await client.call_tool("ask", {"words": "capital?"})).text == "Paris"

    assert seen == ["approved", "one capital?", "two capital?", "model", "two done", "one done"]


async def test_a_function_around_the_model_may_answer_in_its_place(era: Era) -> None:
    async def model(request: SamplingRequest) -> str:
        raise AssertionError("it is not called")

    async def remembered(request: SamplingRequest, call_model: CallModel) -> str:
        return "Rome"

    async with connected(
        asking_server(),
        era=era.version,
        sampling=Sampling(with_tools=model, approve=always),
        middleware=[wrapping(remembered)],
    ) as client:
        assert (await client.call_tool("ask")).text == "Rome"


async def test_the_ids_of_all_messages_that_were_sent_for_a_request_are_known() -> None:
    """Those of connecting, of repeated requests, and of the rounds of input."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=TOOLS)
        await peer.reply_error(await peer.receive("tools/call"), -32000, "busy")
        inputs = {"one": {"method": "sampling/createMessage", "params": QUESTION}}
        await peer.reply(await peer.receive("tools/call"), {"resultType": "input_required", "inputRequests": inputs})
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async def note(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        assert isinstance(request, ClientRequest | ServerRequest)
        if isinstance(request, ServerRequest):
            return await call_next(request)
        assert request.sent_ids == []
        try:
            return await call_next(request)
        except ServerError:
            return await call_next(request)
        finally:
            sent.append((request.method, request.sent_ids))

    sent: list[tuple[str, list[int | str]]] = []
    sampling = Sampling(with_tools=lambda request: "Paris", approve=always)
    async with connected(ScriptedPeer(script), sampling=sampling, middleware=[note]) as client:
        await client.call_tool("t")

    assert sent == [("server/discover", [1]), ("tools/call", [2, 3, 4])]


class Observer:
    """A middleware that keeps the sessions that have ended."""

    def __init__(self) -> None:
        self.ended: list[EndedSession] = []

    async def __call__(self, request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        return await call_next(request)

    def session_ended(self, session: EndedSession) -> None:
        self.ended.append(session)


class FailingObserver(Observer):
    def session_ended(self, session: EndedSession) -> None:
        raise RuntimeError("no metrics today")


@on_both
@pytest.mark.fake_clock
async def test_an_observer_learns_of_each_session_that_has_ended_and_why(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await anyio.sleep(5)
        await peer.aclose()

    peer, observer = ScriptedPeer(script), Observer()
    async with connected(peer, middleware=[FailingObserver(), observer], within=100) as client:
        await anyio.sleep(2)
        await client.aclose()
        await client.connect()
        with pytest.raises(ConnectionClosed):
            await client.call_tool("t")

    closed, lost = observer.ended
    assert [(each.server, each.transport, each.protocol_version) for each in observer.ended] == [
        ("the scripted peer", peer, era.version)
    ] * 2
    assert [closed.seconds, lost.seconds] == pytest.approx([2, 5])
    assert closed.error is None
    assert str(lost.error) == "the scripted peer has ended"
    assert caplog.text.count("session_ended of FailingObserver failed") == 2
