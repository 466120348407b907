"""The limits of sampling for one server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mcp_host.limits import check_count, check_seconds

KiB = 1024
MiB = 1024 * KiB

MAY_BE_ZERO = frozenset({"tools", "tool_calls", "binary", "waiting"})  # at 0, any other limit would refuse everything


class LimitExceeded(Exception):
    """A request, or an answer with the request before it, exceeds a limit. The text names it, for the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingLimits:
    """The limits of sampling: counts, sizes in bytes, times in seconds.

    A request over a limit is refused with -32602 and a message that names the limit, before
    the approver or the model sees it. An answer that would make the server's next request
    too large is refused with -32603 and the same message.
    """

    tools: int = 64
    """Tools in one request. docker-agent, a host that samples with tools, allows as many."""

    tool_name: int = 128
    """Characters in a tool's name: "Tool names SHOULD be between 1 and 128 characters"."""

    tool_definition: int = 64 * KiB
    """One tool as JSON: its name, description and schemas. All tools of a request together
    may take *tools* times as much, 4 MiB by default."""

    tool_calls: int = 32
    """Tool calls in one answer (the number of docker-agent). An answer with more is not sent:
    the server gets -32603, and the log says how many there were."""

    messages: int = 256
    """Messages in one request. A loop of 64 model turns sends 129."""

    blocks: int = 4096
    """Content blocks in one request, including those in tool results: 16 for each message."""

    text: int = 1 * MiB
    """All text in one request that a model reads, in UTF-8: messages, system prompt,
    stop sequences, metadata, inputs and results of tools. About 250,000 tokens."""

    binary: int = 8 * MiB
    """Images, audio and embedded files in one request, decoded from base64."""

    max_tokens: int | None = None
    """Tokens for one answer; None is no limit. Handler and approver see the smaller of
    this and what the server asked for. The server is not told:
    "The client MAY choose to sample fewer tokens than the requested maximum"."""

    at_once_per_server: int = 4
    """Requests of one connection in approver and handler at the same time; further requests wait in order.
    A request whose handler awaits a call of a client does not count meanwhile."""

    at_once: int = 16
    """The same for all connections of one `Sampling` together."""

    waiting: int = 64
    """Requests of one connection that may wait for their turn, one full round of input
    requests. Further requests are refused with -32010."""

    seconds: float = 600.0
    """One answer, from the arrival of the request: waiting for its turn, approval and model
    together. Then everything is cancelled, and the server gets -32011. `math.inf` is no limit."""

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = f"SamplingLimits.{field.name}", getattr(self, field.name)
            if field.name == "seconds":
                check_seconds(name, value)
            elif not (field.name == "max_tokens" and value is None):
                check_count(name, value, least=0 if field.name in MAY_BE_ZERO else 1)
