"""Calling a model under policy: a server's request for a completion, with or without tools.

Stands alone: it knows the protocol's messages, and nothing of clients and connections.
"""

from mcp_host.sampling.approval import Allow, Approve, Deny, always
from mcp_host.sampling.limits import SamplingLimits
from mcp_host.sampling.request import Handler, OuterCall, SamplingMode, SamplingRequest, ToolCall
from mcp_host.sampling.session import Sampling, SamplingCallback, SamplingSession
from mcp_host.sampling.terminal import ask_in_terminal

__all__ = [
    "Allow",
    "Approve",
    "Deny",
    "Handler",
    "OuterCall",
    "Sampling",
    "SamplingCallback",
    "SamplingLimits",
    "SamplingMode",
    "SamplingRequest",
    "SamplingSession",
    "ToolCall",
    "always",
    "ask_in_terminal",
]
