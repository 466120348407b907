"""Let a person in the terminal answer what a server asks: may it use the model, and what goes into its form."""

from __future__ import annotations

from typing import Annotated, Literal

import anyio
from pydantic import BaseModel, Field

from mcp_host import Client, Elicitation, Sampling, SamplingRequest, ask_in_terminal, fill_in_terminal, open_in_browser
from mcp_host.errors import InputNotGiven
from mcp_host.testing import Context, Server
from mcp_host.types import CreateMessageResult

server = Server("harbour")  # stands for a server of others
Port = Literal["Brest", "Dover", "Ostend"]


class Berth(BaseModel):
    boat: str = Field(title="Boat", description="Its name, as it is painted on the stern.", min_length=2)
    port: Port = Field(title="Port")
    arrival: str = Field(title="Arrival", json_schema_extra={"format": "date"})
    nights: int = Field(2, title="Nights", ge=1, le=14)


def high_water(port: Port, day: Annotated[str, Field(description="Such as 2026-11-22.")], meters: bool = True) -> str:
    """The time and the height of high water."""
    return f"{port}, {day}: 11:42, {'6.8 m' if meters else '22 ft'}"


@server.tool
async def book(context: Context) -> str:
    """Book a berth, and say when to enter the harbour."""
    answer = await context.elicit("Which berth shall I book?", Berth)
    if answer.content is None:
        return f"Nothing is booked: {answer.action}."
    question = "When may {boat} enter {port} on {arrival}?".format(**answer.content)
    return (await context.sample_loop(question, tools=[high_water], system_prompt="You are a harbour master.")).text


async def model(request: SamplingRequest) -> CreateMessageResult:
    """Stands for your model: it calls the tool, then answers."""
    if len(request.messages) == 1:
        return request.call("high_water", {"port": "Dover", "day": "2026-11-22"})
    return request.reply("Enter between ten and one o'clock.")


async def main() -> None:
    sampling = Sampling(with_tools=model, approve=ask_in_terminal)
    elicitation = Elicitation(form=fill_in_terminal, url=open_in_browser)
    async with Client(server, sampling=sampling, elicitation=elicitation) as client:
        try:
            print((await client.call_tool("book")).text)
        except InputNotGiven as exc:
            print(exc)


if __name__ == "__main__":
    anyio.run(main)
