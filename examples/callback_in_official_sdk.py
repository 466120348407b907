"""Keep the official Python SDK's client (mcp 2), and let this package answer the servers that sample."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
from sampling_with_tools import model

from mcp_host import Sampling, always

# This file is checked where the SDK is not installed: its dependencies would tie down those of this package.
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
    """The SDK's callback: its types on both sides, and between them all checks, limits and the approval."""
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
