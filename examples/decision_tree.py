"""Decide step by step with the host's model: what it chooses selects its next tools, and the last step is a value."""

from __future__ import annotations

import anyio
from pydantic import BaseModel

from mcp_host import Client, Sampling, ToolCall, always
from mcp_host.testing import Context, ScriptedModel, Server

server = Server("harbour")


class Broken(BaseModel):
    """The letter says that something is broken."""

    part: str


class Noise(BaseModel):
    """The letter complains about noise."""


class Repair(BaseModel):
    """Send a mechanic."""


class Warn(BaseModel):
    """Warn the neighbours."""


def look_up(choice: BaseModel) -> object:
    """What the model has to know about its choice."""
    return {"in stock": {"lamp": 2}.get(choice.part, 0)} if isinstance(choice, Broken) else "Noted."


@server.tool
async def answer_letter(letter: str, context: Context) -> str:
    """Decide what to do about a letter, and draft the answer."""
    kind = await context.sample(letter, tools=[Broken, Noise], tool_choice="required")
    facts = {call: look_up(call.parsed) for call in kind.tool_calls if call.parsed}  # the others answer themselves
    steps = [Repair, Warn] if any(isinstance(call.parsed, Broken) for call in facts) else [Warn]
    step = await context.sample(messages=kind.answered(facts), tools=steps, tool_choice="required")
    done = {call: "Done." for call in step.tool_calls if call.parsed}
    draft = await context.sample(messages=step.answered(done), schema=list[str])
    return " ".join(draft.parsed or ["We have read your letter."])


async def main() -> None:
    answer = ToolCall("answer", {"result": ["Thank you.", "The lamp shines again by Friday."]})
    model = ScriptedModel(ToolCall("Broken", {"part": "lamp"}), ToolCall("Repair"), answer)
    async with Client(server.in_process(), sampling=Sampling(with_tools=model, approve=always)) as client:
        print((await client.call_tool("answer_letter", {"letter": "The lamp at berth 7 is dark!"})).text)
    for request in model.requests:
        print(f"{len(request.messages)} messages, and the tools {', '.join(tool.name for tool in request.tools)}")


if __name__ == "__main__":
    anyio.run(main)
