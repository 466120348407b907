"""Get typed values from the host's model: a server reads a letter with it, and asks again where the values do not fit."""

from __future__ import annotations

from typing import Annotated

import anyio
from pydantic import BaseModel, Field

from mcp_host import Client, Sampling, SamplingRequest, always
from mcp_host.testing import Context, Server
from mcp_host.types import CreateMessageResult, ToolResultContent

server = Server("harbour")


class Booking(BaseModel):
    """The berth that a letter asks for."""

    boat: str
    metres: Annotated[float, Field(gt=0, le=30, description="The length of the boat.")]
    nights: Annotated[int, Field(ge=1)]


@server.tool
async def book(letter: str, context: Context) -> str:
    """Book a berth, by a letter in any words."""
    answer = await context.sample(f"Which berth does this letter ask for?\n\n{letter}", schema=Booking, retries=2)
    if answer.parse_error is not None:
        return f"Nothing is booked: {answer.parse_error.message}."
    booking = answer.parsed
    return f"The {booking.boat} stays {booking.nights} nights, for {booking.metres * booking.nights * 2:.2f} euros."


async def model(request: SamplingRequest) -> CreateMessageResult:
    """Stands for a model, whose first try does not fit."""
    match request.messages[-1].content[0]:
        case ToolResultContent(text=problem):
            print(f"The model is told: {problem}")
            return request.call("answer", {"boat": "Erna", "metres": 9, "nights": 3})
    return request.call("answer", {"boat": "Erna", "metres": "9 m"})


async def main() -> None:
    sampling = Sampling(with_tools=model, approve=always)
    async with Client(server.in_process(), sampling=sampling) as client:
        letter = "My Erna is nine metres long. May we stay from Monday to Thursday?"
        print((await client.call_tool("book", {"letter": letter})).text)


if __name__ == "__main__":
    anyio.run(main)
