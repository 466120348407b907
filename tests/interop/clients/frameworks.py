"""A `ClientGroup` in the agents of another framework: ``frameworks.py FRAMEWORK MARK``.

Each case is a run of an agent whose model makes one call and then answers. Printed is, as JSON, what that model was offered
in each turn and what it got as the result of the call.
"""

# mypy: ignore-errors
# The frameworks are not installed where the types are checked.

import asyncio
import json
import logging
import sys
from base64 import b64decode
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import Path as AsyncPath

from mcp_host import Allow, ClientGroup, Deny
from mcp_host.testing import Context, Server, ToolError
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolAnnotations,
)

FRAMEWORK, MARK = sys.argv[1:]
IN_TIME = 100.0  # seconds for all runs, which take two on an idle machine
PNG = "iVBORw0KGgo="
DOOMED = """
import os, sys
from pathlib import Path
from mcp_host.testing import Server
grave = Path(sys.argv[1])
if grave.exists():
    sys.exit("still dead")
server = Server("doomed")
@server.tool
async def crash() -> str:
    grave.touch()
    os._exit(3)
@server.tool
async def haunt() -> str:
    return "Boo!"
server.run_stdio()
"""

CASES = {
    "a text": ("shop__greet", {"name": "Alan"}),
    "a text that looks like none": ("shop__greet", {"name": "nobody"}),
    "arguments that do not fit": ("shop__greet", {"name": 1}),
    "an object": ("shop__count", {"config": {"a": 1}}),
    "a number": ("shop__double", {"number": 3}),
    "an object that is said twice, and a link": ("shop__find", {}),
    "content of each kind": ("shop__show", {}),
    "a failure": ("shop__fail", {}),
    "a failure without a word": ("shop__refuse", {}),
    "a denial": ("shop__forbidden", {}),
    "a server that goes away before the call": ("spare__lend", {}),
    "a server that ends in the call": ("doomed__crash", {}),
}

shop = Server("shop")
spare = Server("spare")
asked = []
hanging, abandoned = asyncio.Event(), asyncio.Event()


@shop.tool(annotations=ToolAnnotations(read_only_hint=True))
async def greet(name: str, context: Context) -> str:
    """Greet a person."""
    if name == "nobody":
        return "null"
    return f"Hello, {name}{context.meta.get('shop/basket', '')}!"


@shop.tool
async def count(config: dict[str, int]) -> dict[str, int]:
    """How many there are, as text and as structured content."""
    return {"count": len(config)}


@shop.tool
async def find() -> CallToolResult:
    """A link, beside structured content that a text repeats."""
    content = [TextContent(text='{"dots": 1}'), ResourceLink(uri="shop:dots", name="dots")]
    return CallToolResult(content=content, structured_content={"dots": 1})


@shop.tool
async def show() -> CallToolResult:
    """Content of each kind, and structured content that no text repeats."""
    content = [
        TextContent(text="a dot"),
        ImageContent(data=PNG, mime_type="image/png"),
        AudioContent(data=PNG, mime_type="audio/wav"),
        ImageContent(data="A", mime_type="image/png"),
        ResourceLink(uri="shop:dots", name="dots"),
        EmbeddedResource(resource=BlobResourceContents(uri="shop:dot", blob=PNG)),
    ]
    return CallToolResult(content=content, structured_content={"dots": 1})


@shop.tool
async def double(number: int) -> int:
    """Twice as many, which is no object."""
    return 2 * number


@shop.tool
async def refuse() -> CallToolResult:
    """Fail without a word."""
    return CallToolResult(content=[], is_error=True)


@shop.tool
async def fail() -> str:
    """Run, and fail."""
    raise ToolError("sold out")


@shop.tool
async def forbidden() -> str:
    """Never allowed."""
    return "allowed"


@shop.tool
async def hang() -> str:
    """Never end."""
    hanging.set()
    try:
        await asyncio.sleep(IN_TIME)
    finally:
        abandoned.set()
    return "ended"


@shop.prompt
async def order(name: str) -> str:
    """Order something."""
    return f"An order for {name}."


@spare.tool
async def lend() -> str:
    """Not there any more, when it has been approved."""
    return "lent"


# The agents of each framework, with a model that makes one call and then answers. They return a function that runs one, for
# the names of the tools that the model is offered in each turn, and what it got.


def pydantic_ai(group, caller):
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    toolset = group.for_pydantic_ai(caller=caller)

    async def run(name, arguments):
        turns = []

        def model(messages, info):
            turns.append({tool.name: tool.parameters_json_schema for tool in info.function_tools})
            if len(turns) == 1:
                return ModelResponse([ToolCallPart(name, arguments)])
            return ModelResponse([TextPart("done")])

        result = await Agent(FunctionModel(model), toolsets=[toolset]).run("go")
        part = result.all_messages()[2].parts[0]
        return turns, {"outcome": part.outcome, "content": part.content}

    return run


def scripted_openai(name, arguments):
    from agents import ModelResponse, Usage, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)

    class Scripted(Model):
        turns, got = [], None

        async def get_response(self, *, input, tools, **options):
            self.turns.append({tool.name: tool.params_json_schema for tool in tools})
            if len(self.turns) == 1:
                given = json.dumps(arguments)
                item = ResponseFunctionToolCall(type="function_call", call_id="1", name=name, arguments=given)
            else:
                self.got = input[-1]["output"]
                text = ResponseOutputText(type="output_text", text="done", annotations=[])
                item = ResponseOutputMessage(
                    id="1", type="message", role="assistant", status="completed", content=[text]
                )
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *args, **options):
            raise NotImplementedError

    return Scripted()


def openai_agents(group, caller):
    from agents import Agent, Runner

    server = group.for_openai_agents(caller=caller)

    async def run(name, arguments):
        model = scripted_openai(name, arguments)
        await Runner.run(Agent("agent", model=model, mcp_servers=[server]), "go")
        return model.turns, model.got

    return run


def langchain(group, caller):
    async def offered():
        return {tool.name: tool for tool in await group.for_langchain(caller=caller)}

    async def run(name, arguments):
        first = await offered()
        message = await first[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})
        content = [{name: value for name, value in block.items() if name != "id"} for block in message.content]
        got = {"status": message.status, "content": content, "artifact": message.artifact}
        turns = [first, await offered()]
        return [{name: tool.args_schema for name, tool in turn.items()} for turn in turns], got

    return run


def google_adk(group, caller):
    from google.adk.agents import Agent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai.types import Content, FunctionCall, Part

    toolset = group.for_google_adk(caller=caller)

    async def run(name, arguments):
        turns, got = [], []

        class Scripted(BaseLlm):
            async def generate_content_async(self, request, stream=False):
                declared = [each for tool in request.config.tools or [] for each in tool.function_declarations]
                turns.append({each.name: each.parameters_json_schema for each in declared})
                if len(turns) == 1:
                    part = Part(function_call=FunctionCall(name=name, args=arguments))
                else:
                    got.append(request.contents[-1].parts[0].function_response)
                    part = Part(text="done")
                yield LlmResponse(content=Content(role="model", parts=[part]))

        runner = InMemoryRunner(Agent(name="agent", model=Scripted(model="scripted"), tools=[toolset]))
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="1")
        message = Content(role="user", parts=[Part(text="go")])
        async for _ in runner.run_async(user_id="1", session_id=session.id, new_message=message):
            pass
        files = [part.inline_data for part in got[0].parts or []]
        return turns, {"response": got[0].response, "files": [[each.mime_type, each.data] for each in files]}

    return run


# Approvals of the frameworks, which come before the group's. They return the calls that wait for one, and the answer after it.


async def pydantic_ai_approval(group):
    from pydantic_ai import Agent, DeferredToolRequests
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tools import DeferredToolResults

    toolset = group.for_pydantic_ai().approval_required()
    model = TestModel(call_tools=["shop__greet"])
    agent = Agent(model, toolsets=[toolset], output_type=[str, DeferredToolRequests])
    waiting = await agent.run("go")
    [call] = waiting.output.approvals
    assert not asked
    allowed = DeferredToolResults(approvals={call.tool_call_id: True})
    done = await agent.run(message_history=waiting.all_messages(), deferred_tool_results=allowed)
    return [call.tool_name], done.output


async def openai_agents_approval(group):
    from agents import Agent, Runner

    server = group.for_openai_agents(require_approval="always")
    server.tool_meta_resolver = lambda context: {"shop/basket": " with basket 7"}
    model = scripted_openai("shop__greet", {"name": "a"})
    agent = Agent("agent", model=model, mcp_servers=[server])
    waiting = await Runner.run(agent, "go")
    assert not asked
    state = waiting.to_state()
    for call in waiting.interruptions:
        state.approve(call)
    await Runner.run(agent, state)
    return [call.name for call in waiting.interruptions], model.got[0]["text"]


# What only one framework has


async def openai_agents_more(group):
    server = group.for_openai_agents()
    await server.connect()
    [prompt] = (await server.list_prompts()).prompts
    prompted = await server.get_prompt(prompt.name, {"name": "Alan"})
    gone = await server.call_tool("shop__greet", {"name": "Alan"})  # nothing is listed yet
    await server.cleanup()
    return [prompt.name, prompted.messages[0].content.text, gone.content[0].text, gone.is_error]


async def langchain_more(group):
    tools = {tool.name: tool for tool in await group.for_langchain()}
    try:
        tools["shop__greet"].invoke({"name": "Alan"})
    except NotImplementedError as exc:
        return [str(exc), tools["shop__greet"].metadata, tools["shop__count"].metadata]


# The application


def plain(value):
    """JSON of what a model got. Bytes are their base64."""
    match value:
        case bytes():
            return "the bytes" if value == b64decode(PNG) else repr(value)
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return list(map(plain, value))
        case str() | int() | float() | None:
            return value
    return {"media_type": value.media_type, "data": plain(value.data)}


async def until(state, group, changed):
    """Wait until the server that is doomed is in this *state*."""
    while group.status()["doomed"].state != state:
        changed.clear()
        await changed.wait()


async def main(folder):
    logging.disable()  # stderr is for what went wrong in here
    report = {}

    async def approve(call):
        asked.append([call.server, call.name, call.caller])
        if call.name == "spare__lend":
            await group.disable("spare")
        return Deny("not today") if call.name == "shop__forbidden" else Allow()

    changed = asyncio.Event()

    async def on_status(status):
        changed.set()

    grave = Path(folder, "grave")
    servers = {
        "shop": shop,
        "spare": spare,
        "doomed": [sys.executable, "-c", DOOMED, str(grave), MARK],
        "down": ["no-such-program"],
    }
    opening = ClientGroup(servers, approve=approve, on_status=on_status, wait="all")
    async with asyncio.timeout(IN_TIME) as bound, opening as group:
        run = globals()[FRAMEWORK](group, "alice")  # it imports the framework, which is not in time
        bound.reschedule(asyncio.get_running_loop().time() + IN_TIME)
        for case, (name, arguments) in CASES.items():
            turns, got = await run(name, arguments)
            report[case] = plain(got)
            if case == "a text":
                listed = {tool.name: tool.input_schema for tool in await group.list_tools()}
                assert turns == [listed, listed], turns
                report["offered"] = list(listed)
            elif case == "a server that goes away before the call":
                report["no longer offered"] = [name for name in turns[0] if name not in turns[1]]
        report["asked"] = asked.copy()
        await until("down", group, changed)
        turns, got = await run("shop__greet", {"name": "Alan"})
        report["while a server is dead"] = [*map(list, turns), plain(got)]
        await AsyncPath(grave).unlink()
        await until("ready", group, changed)
        turns, got = await run("doomed__haunt", {})
        report["when it is back"] = [*map(list, turns), plain(got)]
        asked.clear()
        if (own_approval := globals().get(f"{FRAMEWORK}_approval")) is not None:
            report["own approval"] = [*await own_approval(group), [name for _, name, _ in asked]]
        if (more := globals().get(f"{FRAMEWORK}_more")) is not None:
            report["more"] = await more(group)
        abandoning = asyncio.create_task(run("shop__hang", {}))
        await hanging.wait()
        abandoning.cancel()
        await asyncio.wait([abandoning])
        assert abandoning.cancelled()
        await abandoned.wait()
    print(json.dumps(report))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(folder))
