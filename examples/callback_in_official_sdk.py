"""Keep the official Python SDK's client (mcp 2), and answer its sampling requests with this package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
from sampling_with_tools import model

from mcp_host import Sampling, always

# The SDK is not installed where types are checked: its dependencies conflict with those of this package.
try:
    from mcp import Client, StdioServerParameters  # type: ignore[import-not-found]
    from mcp_types import (  # type: ignore[import-not-found]
        CreateMessageResultWithTools,
        ErrorData,
        SamplingCapability,
    )
except ImportError:
    sys.exit("this example needs the official SDK: pip install mcp==2.3.0")

SERVER = Path(__file__).with_name("calculator_server.py")

sampling = Sampling(with_tools=model, approve=always)
respond = sampling.callback(server="calculator")  # one for each connection


async def sampling_callback(context: object, params: Any) -> object:
    """The SDK's callback: takes and returns the SDK's types, with all checks, limits and the approval between them."""
    answer = await respond(params.model_dump(by_alias=True, mode="json", exclude_none=True))
    if "error" in answer:
        return ErrorData.model_validate(answer["error"])
    return CreateMessageResultWithTools.model_validate(answer["result"])


async def main() -> None:
    client = Client(
        StdioServerParameters(command=sys.executable, args=[str(SERVER)]),
        sampling_callback=sampling_callback,
        sampling_capabilities=SamplingCapability.model_validate(sampling.capability()),
    )
    async with client:
        result = await client.call_tool("solve", {"problem": "Six dogs and three ants: how many legs?"})
        print(*(block.text for block in result.content))


if __name__ == "__main__":
    anyio.run(main)
