"""The limits of sampling for one server."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_host.limits import check_limits, count, in_bytes, in_seconds

KiB = 1024
MiB = 1024 * KiB


class LimitExceeded(Exception):
    """A request, or an answer with the request before it, exceeds a limit. The text names it, for the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingLimits:
    """The limits of sampling: counts, sizes in bytes, times in seconds.

    A request over a limit is refused with -32602 and a message that names the limit, before
    the approver or the model sees it. An answer that would make the server's next request
    too large is refused with -32603 and the same message.
    """

    tools: int = count(64, least=0)
    """Tools in one request. docker-agent, a host that samples with tools, allows as many."""

    tool_name: int = count(128)
    """Characters in a tool's name: "Tool names SHOULD be between 1 and 128 characters"."""

    tool_definition: int = in_bytes(64 * KiB)
    """Bytes of one tool as JSON: its name, description and schemas. All tools of a request together
    may take *tools* times as much, 4 MiB by default."""

    tool_calls: int = count(32, least=0)
    """Tool calls in one answer (the number of docker-agent). An answer with more is not sent:
    the server gets -32603, and the log says how many there were."""

    messages: int = count(256)
    """Messages in one request. A loop of 64 model turns sends 129."""

    blocks: int = count(4096)
    """Content blocks in one request, including those in tool results: 16 for each message."""

    values: int = count(30_000)
    """Values in one request: members of objects and items of arrays, but for those inside of schemas, of inputs of
    tools, of structured content and of metadata. Reading more would block the event loop."""

    text: int = in_bytes(1 * MiB)
    """Bytes of all text in one request that a model reads, in UTF-8: messages, system prompt,
    stop sequences, metadata, inputs and results of tools. About 250,000 tokens."""

    binary: int = in_bytes(8 * MiB, least=0)
    """Bytes of images, audio and embedded files in one request, decoded from base64."""

    max_tokens: int | None = count(None)
    """Tokens for one answer; None is no limit. Handler and approver see the smaller of
    this and what the server asked for. The server is not told:
    "The client MAY choose to sample fewer tokens than the requested maximum"."""

    at_once_per_server: int = count(4)
    """Requests of one connection in approver and handler at the same time; further requests wait in order.
    A request does not count while its handler awaits a call of a client, or `ask_host` its user."""

    at_once: int = count(16)
    """Requests of all connections of one `Sampling` in approver and handler at the same time. Connections that wait take turns."""

    waiting: int = count(64, least=0)
    """Requests of one connection that may wait for their turn. Further requests are refused with -32010.
    What a server requires to finish your own call (2026-07-28) always waits:
    `Limits.max_inputs_per_round` bounds it."""

    seconds: float = in_seconds(600.0)
    """Seconds for one answer, from the arrival of the request: waiting for its turn, approval and model
    together. Then everything is cancelled, and the server gets -32011. `math.inf` is no limit."""

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTools:
    """The limits of a server's own tools, which the host runs inside the server's sampling requests.

    `SamplingLimits` apply, too: to each answer of the model, to the conversation as it grows, and
    to the seconds of the whole request.
    """

    max_turns: int = count(10, least=2)
    """Answers of the model for one request of the server, at least 2. The last one is asked for with the tool choice
    "none", so that it calls no more tools."""

    max_calls: int = count(100)
    """Calls of tools within one call of yours, with those for the sampling requests within them. Beyond that no call of an
    answer is run: it goes to the server, which has to run them. With `Sampling.callback`, where your call is
    not known, they are counted for the connection, within *timeout* seconds."""

    timeout: float = in_seconds(300.0, zero=False)
    """Seconds for one request of the server: all answers, calls and approvals of calls together."""

    tool_timeout: float = in_seconds(30.0, zero=False)
    """Seconds for one call of a tool. With a `Client` they are its *timeout*: paused while your handlers answer
    what the server asks within the call, and not counted while `approve_tool_calls` asks. `Limits.idle_timeout`
    applies, too."""

    max_result_bytes: int = in_bytes(64 * KiB)
    """Bytes of text of one result, in UTF-8. The model gets the head and the tail of a longer one, with a note."""

    def __post_init__(self) -> None:
        check_limits(self)
        if self.max_turns % 1:  # also for math.inf
            raise ValueError(f"OwnTools.max_turns must be a whole number, not {self.max_turns}")

    @classmethod
    def chosen(cls, value: object, *, argument: str) -> OwnTools | None:
        """What the *value* of an argument means: True the defaults, False none.

        Raises:
            TypeError: It is something else.
        """
        if not isinstance(value, bool | OwnTools):
            raise TypeError(f"{argument} is True, False, or OwnTools(max_turns=..., timeout=...)")
        return (cls() if value else None) if isinstance(value, bool) else value
