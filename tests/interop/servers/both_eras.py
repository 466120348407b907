"""A server on the official Python SDK that offers the same in both eras: what `both_eras.mjs` offers, too.

Runs in the environment that `run.py` installs: ``both_eras.py stdio|http|stateless PORT MARK``.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

import sys
from collections import defaultdict
from typing import Annotated, Any

import anyio
from mcp.server.caching import CacheHint
from mcp.server.mcpserver import (
    Context,
    Elicit,
    ElicitationResult,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
)
from pydantic import BaseModel, Field

MODERN = "2026-07-28"
MAX_TURNS = 12  # of the model, before the server gives up

HOUR = CacheHint(ttl_ms=3_600_000, scope="public")

mcp = MCPServer(
    "both-eras",
    version="1.0.0",
    instructions="For interoperability tests.",
    cache_hints={"tools/list": HOUR, "resources/read": HOUR},
)


async def note_method(ctx, call_next):
    """Say on standard error what was asked, for tests that count it."""
    print("heard", ctx.method, file=sys.stderr, flush=True)
    return await call_next(ctx)


mcp.middleware.append(note_method)

cancelled = defaultdict(anyio.Event)  # by the name of a call of `hang`

OPERATIONS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
PAIR = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
TOOLS = [
    Tool(name=name, description=f"{name.capitalize()} two numbers", input_schema=PAIR)
    for name in (*OPERATIONS, *(f"keep{number}" for number in range(14)))
]


def wire(model) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def text(role, words) -> SamplingMessage:
    return SamplingMessage(role=role, content=TextContent(type="text", text=words))


class Dialogue(BaseModel):
    """What a calculation came to so far. It travels through the client between the rounds of 2026-07-28."""

    messages: list[SamplingMessage]
    answers: list[dict[str, Any]] = []
    ran: dict[str, str] = {}
    over: bool = False

    def request(self) -> CreateMessageRequest:
        return CreateMessageRequest(
            params=CreateMessageRequestParams(
                messages=self.messages,
                max_tokens=500,
                system_prompt="Use the calculator.",
                tools=TOOLS,
                tool_choice=ToolChoice(mode="auto"),
            )
        )

    def take(self, answer) -> None:
        self.answers.append(wire(answer))
        blocks = answer.content if isinstance(answer.content, list) else [answer.content]
        uses = [block for block in blocks if block.type == "tool_use"]
        if (answer.stop_reason == "toolUse") != bool(uses):
            raise ToolError(f"stopReason {answer.stop_reason!r} with {len(uses)} tool calls")
        if len(self.answers) == MAX_TURNS:
            raise ToolError(f"no end after {MAX_TURNS} turns")
        self.over = not uses
        self.ran |= {use.id: str(OPERATIONS[use.name](**use.input)) for use in uses}
        if uses:
            self.messages.append(SamplingMessage(role="assistant", content=answer.content))
            results = [result_of(use.id, self.ran[use.id]) for use in uses]
            self.messages.append(SamplingMessage(role="user", content=results))


def result_of(id, words) -> ToolResultContent:
    return ToolResultContent(type="tool_result", tool_use_id=id, content=[TextContent(type="text", text=words)])


@mcp.tool()
async def calculate(question: str, ctx: Context) -> dict[str, Any] | InputRequiredResult:
    """Have the client's model answer with this server's calculator; report its answers, and what was run for them."""
    dialogue = Dialogue(messages=[text("user", question)])
    if ctx.protocol_version != MODERN:
        while not dialogue.over:
            asked = dialogue.request().params
            options = {name: getattr(asked, name) for name in ("max_tokens", "system_prompt", "tools", "tool_choice")}
            answer = await ctx.session.create_message(
                asked.messages, **options, related_request_id=ctx.request_context.request_id
            )
            dialogue.take(answer)
    if ctx.request_state is not None:
        dialogue = Dialogue.model_validate_json(ctx.request_state)
        dialogue.take(ctx.input_responses["turn"])
    if not dialogue.over:
        return InputRequiredResult(
            input_requests={"turn": dialogue.request()}, request_state=dialogue.model_dump_json()
        )
    return {"answers": dialogue.answers, "ran": dialogue.ran}


async def ask_summary(text: str) -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text=text))], max_tokens=100)


@mcp.tool()
async def summarize(text: str, summary: Annotated[CreateMessageResult, Resolve(ask_summary)]) -> dict[str, Any]:
    """Have the client's model answer, without tools."""
    return wire(summary)


class Order(BaseModel):
    size: str
    count: int = Field(ge=1, le=9)


async def ask_order(what: str) -> Elicit[Order]:
    return Elicit(f"Which {what}?", Order)


async def ask_opinion(what: str) -> Sample:
    return Sample([text("user", f"Is {what} any good?")], max_tokens=100)


async def ask_roots() -> ListRoots:
    return ListRoots()


def outcome(result) -> dict[str, Any]:
    return {"action": result.action, **({"content": wire(result.data)} if result.action == "accept" else {})}


@mcp.tool()
async def order(what: str, answer: Annotated[ElicitationResult[Order], Resolve(ask_order)]) -> dict[str, Any]:
    """Ask the user."""
    return outcome(answer)


@mcp.tool()
async def gather(
    what: str,
    answer: Annotated[ElicitationResult[Order], Resolve(ask_order)],
    opinion: Annotated[CreateMessageResult, Resolve(ask_opinion)],
    roots: Annotated[ListRootsResult, Resolve(ask_roots)],
) -> dict[str, Any]:
    """Ask for all three kinds of input: in one round, where there are rounds."""
    return {"order": outcome(answer), "opinion": wire(opinion)["content"], "roots": wire(roots)["roots"]}


@mcp.tool()
async def told(ctx: Context) -> dict[str, Any]:
    """What the client said of itself."""
    params = ctx.session.client_params
    return {
        "version": ctx.protocol_version,
        "client": wire(params.client_info),
        "capabilities": wire(ctx.client_capabilities),
    }


@mcp.tool()
async def count(to: int, ctx: Context) -> int:
    """Report progress from 1 to *to*, with a line of log each."""
    for step in range(1, to + 1):
        await ctx.report_progress(step, to, f"step {step}")
        await ctx.info(f"at {step}")
    return to


@mcp.tool()
async def repeat(words: str, times: int) -> str:
    """Say it as often as that."""
    return words * times


@mcp.tool()
async def hang(name: str, ctx: Context) -> None:
    """Report that it has begun, and never end by itself."""
    try:
        await ctx.report_progress(1)
        await anyio.sleep_forever()
    finally:
        cancelled[name].set()


@mcp.tool()
async def cancellation_of(name: str) -> str:
    """Wait until the call of `hang` under that name is cancelled."""
    await cancelled[name].wait()
    return name


@mcp.tool()
async def measure(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Take an argument that goes into a header, too, over HTTP and in the era that has them."""
    return region


@mcp.tool()
async def fail() -> str:
    """Fail."""
    raise ToolError("as asked")


@mcp.tool()
async def offer(name: str, ctx: Context) -> str:
    """Add a tool of that name, and tell the clients of both eras."""
    mcp.add_tool(fail, name=name)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return name


@mcp.tool()
async def touch(uri: str, ctx: Context) -> str:
    """Tell those who subscribed to it that a resource has changed."""
    await ctx.notify_resource_updated(uri)
    await ctx.session.send_resource_updated(uri)
    return uri


@mcp.resource("note://{name}", mime_type="text/plain")
async def note(name: str) -> str:
    if name != "today":
        raise ResourceNotFoundError(f"no note of {name}")
    return "Buy milk."


@mcp.resource("letter://{to}", mime_type="text/plain")
async def letter(to: str, ctx: Context) -> str | InputRequiredResult:
    """A resource that the user has to sign."""
    signed = await signature(f"Sign the letter to {to}?", ctx)
    return signed if isinstance(signed, InputRequiredResult) else f"Dear {to}, yours, {signed}"


@mcp.prompt()
async def greeting(name: str) -> str:
    return f"Greet {name}."


@mcp.prompt()
async def ode(to: str, ctx: Context) -> str | InputRequiredResult:
    """A prompt that the user has to sign."""
    signed = await signature(f"Sign the ode to {to}?", ctx)
    return signed if isinstance(signed, InputRequiredResult) else f"An ode to {to} by {signed}."


class Signature(BaseModel):
    name: str


async def signature(question: str, ctx: Context) -> str | InputRequiredResult:
    """Who signed. In 2026-07-28, before that: the result that asks for the signature."""
    if ctx.protocol_version != MODERN:
        return (await ctx.elicit(question, Signature)).data.name
    if ctx.input_responses is not None:
        return ctx.input_responses["signature"].content["name"]
    asked = ElicitRequestFormParams(message=question, requested_schema=Signature.model_json_schema())
    return InputRequiredResult(input_requests={"signature": ElicitRequest(params=asked)})


if __name__ == "__main__":
    transport, port = sys.argv[1], int(sys.argv[2])
    if transport == "stdio":
        mcp.run()
    else:
        mcp.run("streamable-http", host="127.0.0.1", port=port, stateless_http=transport == "stateless")
