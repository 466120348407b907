"""Sampling for the authors of servers: typed answers of the host's model, over any server.

>>> sampling = ServerSampling(create_message, with_tools=True)
>>> answer = await sampling.sample("Your move?", schema=Move)
>>> answer.parsed.row if answer.parse_error is None else answer.parse_error.message
"""

from mcp_host.sampling.structured.other_servers import sampling_for_fastmcp, sampling_for_sdk
from mcp_host.sampling.structured.prompts import Choice, Message, SamplingTool
from mcp_host.sampling.structured.replay import ReplayError
from mcp_host.sampling.structured.results import (
    ParsedLoopResult,
    ParsedResult,
    ParseError,
    RequestedCall,
    SamplingResult,
    ServerLoopResult,
    ToolCallsResult,
    UnparsedLoopResult,
    UnparsedResult,
)
from mcp_host.sampling.structured.server_sampling import CreateMessage, SamplingOptions, ServerSampling

__all__ = [
    "Choice",
    "CreateMessage",
    "Message",
    "ParseError",
    "ParsedLoopResult",
    "ParsedResult",
    "ReplayError",
    "RequestedCall",
    "SamplingOptions",
    "SamplingResult",
    "SamplingTool",
    "ServerLoopResult",
    "ServerSampling",
    "ToolCallsResult",
    "UnparsedLoopResult",
    "UnparsedResult",
    "sampling_for_fastmcp",
    "sampling_for_sdk",
]
