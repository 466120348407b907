"""Who answers what the server asks: the host, the proxy, or nobody; and whose user allows it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Literal

import pytest
from anyio import Event, create_task_group, sleep_forever

from mcp_host import Allow, Client, Deny, Elicitation, FormRequest, Sampling, SamplingLimits, SamplingRequest, always
from mcp_host.errors import McpError
from mcp_host.providers import AnthropicModel
from mcp_host.proxy import Proxy, allow_tools, ask_host
from mcp_host.proxy.approval import CALL_UNKNOWN, HOW_TO_ALLOW
from mcp_host.testing import Context, Server
from mcp_host.types import CreateMessageRequestParams, ElicitResult, TextContent, UserMessage
from tests.extent import on_both
from tests.providers.test_adapter import Answering
from tests.proxy.servers import ERAS, Planner, add, model_of, text_of, through, user, visit

pytestmark = on_both

each_host = pytest.mark.parametrize("host", ["legacy", "modern"])
each_server = pytest.mark.parametrize("server", ["legacy", "modern"])

NO_MODEL = "neither the host nor this proxy has a model for this request"


def refused(result: Any) -> str:
    assert result.is_error
    return str(result.content[0].text)


async def fails(client: Client, tool: str) -> str:
    """Why the call fails: by a result of a server with a handshake, by an error since."""
    try:
        return refused(await client.call_tool(tool))
    except McpError as exc:
        return str(exc)


@each_host
@pytest.mark.parametrize(
    ("choice", "own", "of_host", "answered"),
    [
        ("auto", True, True, "host after 0"),
        ("auto", True, False, "proxy after 0"),
        ("auto", False, True, "host after 0"),
        ("always", True, True, "proxy after 0"),
        ("always", False, True, "host after 0"),
        ("never", True, True, "host after 0"),
    ],
)
async def test_who_answers_for_the_model(
    host: str, choice: Literal["auto", "always", "never"], own: bool, of_host: bool, answered: str
) -> None:
    proxy = Proxy(Planner(), sampling=model_of("proxy") if own else None, answer_sampling=choice)
    async with through(proxy, host, sampling=model_of("host") if of_host else None) as client:
        assert text_of(await client.call_tool("write")) == answered


async def test_a_host_without_tools_is_asked_for_plain_texts_and_the_proxy_with_tools() -> None:
    host = Sampling(basic=lambda request: "host", approve=lambda request: Allow())
    async with through(Proxy(Planner(), sampling=model_of("proxy")), "legacy", sampling=host) as client:
        assert text_of(await client.call_tool("write")) == "host"
        assert text_of(await client.call_tool("plan", {"dinner": "soup"})) == "proxy after 2"


async def test_a_proxy_without_a_model_offers_what_its_host_does() -> None:
    async with through(Proxy(Planner(ERAS["legacy"])), "legacy") as client:
        assert "sampling" in refused(await client.call_tool("write"))
    basic = Sampling(basic=lambda request: "host", approve=lambda request: Allow())
    async with through(Proxy(Planner(ERAS["legacy"])), "legacy", sampling=basic) as client:
        assert text_of(await client.call_tool("write")) == "host"


async def test_a_server_that_asks_although_nobody_can_answer_is_told_so() -> None:
    server = Server("asking", versions=ERAS["legacy"])

    @server.tool
    async def ask(context: Context, method: str) -> str:
        return str(await context.request(method, {"messages": [], "maxTokens": 1}))

    async with through(Proxy(server), "legacy") as client:
        assert NO_MODEL in refused(await client.call_tool("ask", {"method": "sampling/createMessage"}))
        assert "the host cannot ask its user" in refused(
            await client.call_tool("ask", {"method": "elicitation/create"})
        )
    async with through(Proxy(server), "modern") as client:
        assert "the host knows no such" in refused(await client.call_tool("ask", {"method": "x/ask"}))


@each_server
async def test_the_refusal_of_a_host_reaches_the_server_as_it_is(server: str) -> None:
    denying = Sampling(basic=lambda request: "never", approve=lambda request: Deny("not today"))
    async with through(Proxy(Planner(ERAS[server])), "legacy", sampling=denying) as client:
        assert "not today" in await fails(client, "write")


async def test_the_proxys_own_user_is_asked_where_the_host_has_none() -> None:
    own = Proxy(Planner(), elicitation=user())
    async with through(own, "legacy") as client:
        assert text_of(await client.call_tool("book")) == "accept Ada"
        assert text_of(await client.call_tool("pay")) == "accept"
    declining = Elicitation(form=lambda request: ElicitResult(action="decline"))
    async with through(own, "legacy", elicitation=declining) as client:
        assert text_of(await client.call_tool("book")) == "decline None"
        assert text_of(await client.call_tool("pay")) == "accept"


@each_host
@each_server
async def test_what_the_proxys_model_thought_before_its_calls_goes_back_to_it(host: str, server: str) -> None:
    """The server gets none of it."""
    heard: list[object] = []
    thought = {"type": "thinking", "thinking": "secret", "signature": "s"}
    called = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1, "b": 2}}
    sdk = Answering(
        {"content": [thought, called], "model": "claude-sonnet-5", "stop_reason": "tool_use"},
        {"content": [{"type": "text", "text": "3"}], "model": "claude-sonnet-5", "stop_reason": "end_turn"},
    )
    adding = Server("adding", versions=ERAS[server])

    @adding.tool
    async def ask(context: Context) -> str:
        loop = await context.sample_loop("1 + 2?", tools=[add])
        heard.extend(loop.messages)
        return loop.text

    model = AnthropicModel(sdk, "claude-sonnet-5")
    async with through(Proxy(adding, sampling=Sampling(with_tools=model, approve=always)), host) as client:
        assert text_of(await client.call_tool("ask")) == "3"
    assert ["secret" in str(body["messages"]) for body in sdk.bodies] == [False, True]
    assert heard
    assert "secret" not in str(heard)


# Approval

CHOICES = ("once", "for this call", "no", "show all")


def choices(form: FormRequest) -> object:
    properties: Any = form.requested_schema["properties"]
    return properties["answer"]["enum"]


@each_host
@each_server
async def test_the_hosts_user_allows_the_proxys_model_in_a_form(host: str, server: str) -> None:
    forms: list[FormRequest] = []
    answers = ["show all", "once", "for this call", "once", "no", "show all", "show all"]

    async def fill_in(request: FormRequest) -> ElicitResult:
        forms.append(request)
        return ElicitResult(action="accept", content={"answer": answers[len(forms) - 1]})

    sampling = model_of("proxy", approve=ask_host)
    proxy = Proxy(Planner(ERAS[server]), name="dinner", sampling=sampling)
    async with through(proxy, host, elicitation=Elicitation(form=fill_in)) as client:
        assert text_of(await client.call_tool("plan", {"dinner": "soup"})) == "proxy after 2"
        assert len(forms) == 3
        assert "dinner" in forms[0].message
        assert "add(a: integer, b: integer)" in forms[0].message
        assert '"properties"' not in forms[0].message
        assert '"properties"' in forms[1].message
        assert [choices(form) for form in forms[:2]] == [[*CHOICES], [each for each in CHOICES if each != "show all"]]
        assert text_of(await client.call_tool("write")) == "proxy after 0"
        for _ in range(2):
            await fails(client, "write")
    assert len(forms) == 7


@each_server
@pytest.mark.parametrize(
    "elicitation",
    [
        None,
        Elicitation(url=visit),
        Elicitation(form=lambda request: ElicitResult(action="cancel")),
        Elicitation(form=lambda request: ElicitResult(action="accept", content={"answer": ["once"]})),
    ],
)
async def test_without_a_form_that_is_filled_in_nothing_is_allowed(
    server: str, elicitation: Elicitation | None
) -> None:
    asked: list[SamplingRequest] = []
    proxy = Proxy(Planner(ERAS[server]), sampling=model_of("proxy", seen=asked, approve=ask_host))
    async with through(proxy, "legacy", elicitation=elicitation) as client:
        why = await fails(client, "write")
    assert asked == []
    assert (HOW_TO_ALLOW in why) == (elicitation is None or elicitation.form is None)


async def test_tools_may_be_allowed_by_their_names() -> None:
    proxy = Proxy(
        Planner(), sampling=model_of("proxy", approve=allow_tools("pl*", "x", otherwise=lambda request: Deny("no")))
    )
    async with through(proxy, "legacy") as client:
        assert text_of(await client.call_tool("plan", {"dinner": "soup"})) == "proxy after 2"
        assert "no" in await fails(client, "write")
    params = CreateMessageRequestParams(messages=[UserMessage(content=[TextContent(text="?")])], max_tokens=1)
    of_no_call = SamplingRequest(params=params, server="x")
    decided = allow_tools("*", otherwise=ask_host)(of_no_call)
    assert isinstance(decided, Awaitable)
    assert await decided == Deny(CALL_UNKNOWN)


@each_host
async def test_a_user_who_has_not_decided_keeps_nobody_from_the_model(host: str) -> None:
    """`SamplingLimits.at_once` is for the hosts of all users."""
    asked = Event()

    async def decide(request: FormRequest) -> ElicitResult:
        if not asked.is_set():
            asked.set()
            await sleep_forever()
        return ElicitResult(action="accept", content={"answer": "once"})

    async def answer(request: SamplingRequest) -> str:
        return "proxy"

    limits = SamplingLimits(at_once=1, at_once_per_server=1)
    proxy = Proxy(Planner(ERAS["legacy"]), sampling=Sampling(with_tools=answer, approve=ask_host, limits=limits))
    asking = Elicitation(form=decide)
    async with (
        through(proxy, host, elicitation=asking) as one,
        Client(proxy, era=host, elicitation=asking) as other,
        create_task_group() as tasks,
    ):
        tasks.start_soon(one.call_tool, "write")
        await asked.wait()
        assert text_of(await other.call_tool("write")) == "proxy"
        assert text_of(await one.call_tool("write")) == "proxy"
        tasks.cancel_scope.cancel()


def test_what_a_proxy_cannot_be_made_with() -> None:
    with pytest.raises(ValueError, match='"auto", "always" or "never"'):
        Proxy(Planner(), answer_sampling="sometimes")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Proxy(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tools is ToolPolicy"):
        Proxy(Planner(), tools={"plan"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="state_key has 3 bytes, and needs 32 at least"):
        Proxy(Planner(), state_key=b"abc")
    with pytest.raises(TypeError, match="models is a list of names"):
        Proxy(Planner(), models="large")
