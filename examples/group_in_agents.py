"""The tools of several servers for agents of other frameworks: pydantic-ai, the OpenAI Agents SDK, LangChain, Google ADK."""

from __future__ import annotations

import sys
from pathlib import Path

import agents
import anyio
import pydantic_ai
from google.adk.agents import Agent
from pydantic_ai.models.test import TestModel

from mcp_host import Allow, ClientGroup, ProposedCall

HELLO = Path(__file__).with_name("hello_server.py")


async def approve(call: ProposedCall) -> Allow:
    """Allow everything. `ask_in_terminal` asks a person instead."""
    print(f"{call.server} runs {call.name}")
    return Allow()


async def main() -> None:
    async with ClientGroup(
        {"greeter": [sys.executable, HELLO], "files": ["no-such-program"]}, approve=approve, wait="all"
    ) as group:
        agent = pydantic_ai.Agent(TestModel(), toolsets=[group.for_pydantic_ai()])  # it calls every tool once
        print("pydantic-ai:", (await agent.run("Greet someone.")).output)

        assistant = agents.Agent("assistant", mcp_servers=[group.for_openai_agents()])
        print("OpenAI Agents:", *[tool.name for tool in await assistant.get_mcp_tools(agents.RunContextWrapper(None))])

        tools = await group.for_langchain()  # for langchain.agents.create_agent(model, tools)
        print("LangChain:", (await tools[0].ainvoke({"name": "Alan"}))[0]["text"])

        helper = Agent(name="helper", model="gemini-flash-latest", tools=[group.for_google_adk()])
        print("Google ADK:", *[tool.name for tool in await helper.canonical_tools()])


if __name__ == "__main__":
    anyio.run(main)
