"""The limits of one connection, and the checks of every limit that an application sets."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

MiB = 1024 * 1024
LARGEST = sys.float_info.max  # a larger integer does not fit a float; Python cannot even print one of 4,300 digits


def check_count(name: str, count: float, *, least: int = 1, zero: bool = True, what: str = "a number") -> None:
    """Check that *count* is a number of items or bytes, at least *least*; `math.inf` is no limit. *zero*: if 0 may be it.

    Raises:
        TypeError: It is not a number.
        ValueError: It is smaller, nan, or an integer too large for a float.
    """
    if isinstance(count, bool) or not isinstance(count, Real):
        raise TypeError(f"{name} must be {what}, not {count!r}")
    if not count >= least or (count == 0 and not zero):  # the first is true for nan, too
        bound = f"at least {least}" if zero else "more than 0"
        raise ValueError(f"{name} must be {bound}, not {max(count, -LARGEST)}")
    if LARGEST < count < math.inf:
        raise ValueError(f"{name} must be at most {LARGEST:g}, or math.inf for no bound")


def check_seconds(name: str, seconds: float, *, zero: bool = True) -> float:
    """*seconds*, a time of at least 0, or of more without *zero*. Raises as `check_count` does."""
    check_count(name, seconds, least=0, zero=zero, what="a number of seconds")
    return seconds


def check_limits(limits: DataclassInstance) -> None:
    """Check each field as its unit requires: `in_seconds`, `in_bytes` or `count`. None passes where it is the default.

    Raises:
        TypeError, ValueError: As `check_count` does.
    """
    for limit in fields(limits):
        value = getattr(limits, limit.name)
        if value is not None or limit.default is not None:
            limit.metadata["check"](f"{type(limits).__name__}.{limit.name}", value)


def in_seconds(default: T, *, zero: bool = True) -> T:
    """A limit in seconds, as a field of a dataclass; see `check_limits`."""
    return field(default=default, metadata={"check": partial(check_seconds, zero=zero)})


def in_bytes(default: T, *, least: int = 1) -> T:
    """A limit in bytes, as a field of a dataclass; see `check_limits`."""
    return count(default, least=least)


def count(default: T, *, least: int = 1) -> T:
    """A limit that is a number of items, as a field of a dataclass; see `check_limits`."""
    return field(default=default, metadata={"check": partial(check_count, least=least)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one client's connection: times in seconds, sizes in bytes.

    The limits of sampling are `SamplingLimits`: pass them to ``Sampling(limits=...)``.
    """

    connect_timeout: float = in_seconds(30.0)
    """Seconds for connecting: starting or reaching the server, and the handshake. Paused like `timeout`. If a running
    server does not answer `initialize` in this time, the client may ask again with fewer capabilities,
    for a third of this time."""

    timeout: float = in_seconds(3600.0)
    """Seconds for one call from beginning to end, progress or not. Paused while the client handles server requests
    that belong to the call, and while a person logs in, for *input_timeout* in total. If an HTTP server becomes unreachable, the client
    tries again after 0.1, 0.5 and 2 seconds; then the call fails, even if time is left."""

    idle_timeout: float = in_seconds(120.0)
    """Seconds that the server may be silent during one call. Requested progress and server requests within
    the call restart it, and over HTTP each event or comment on its own stream. Paused like `timeout`, and while the client
    gets its authorization."""

    input_timeout: float = in_seconds(3600.0)
    """Seconds, in total, that your handlers, forms and logins may pause the timeouts of one call. After that
    the timeouts run again, so a server cannot extend a call by asking."""

    close_timeout: float = in_seconds(10.0)
    """Seconds for closing. After that, what is still running is killed."""

    max_message: int = in_bytes(64 * MiB)
    """Bytes of one message: a line, a JSON body or an event, after decompression. A request whose answer is larger fails."""

    max_values: int = count(30_000)
    """Values in one result of a tool, a prompt or a resource: about 10,000 content blocks. Members of objects and items
    of arrays count, but not those inside of *structuredContent*. A result with more fails, because reading it would
    block the event loop. The same holds for an item of a list, which is left out, and for a notification, which is counted.
    Above 2,000 items of arrays a result fails, too, if anything in it is malformed, because it would be read twice."""

    max_outbox: int = in_bytes(64 * MiB)
    """Bytes of memory for what waits to be written to a pipe. Beyond that, writers wait."""

    stall_timeout: float = in_seconds(60.0)
    """Seconds that a server may read nothing while data waits to be written. Then the connection is closed."""

    max_answers: int = count(1024)
    """Server requests handled at the same time. Further requests are dropped and counted."""

    max_notifications: int = count(1024)
    """Notifications waiting for a callback. Beyond that, the oldest are dropped and counted."""

    max_pages: int = count(1000)
    """Pages of one list. Further pages are not requested, and a warning says so."""

    max_inputs: int = count(500)
    """Requests for input (sampling, elicitation, roots) that servers may make within one call. Each turn of
    a server's tool loop counts as one, and so does each request within the calls that your handlers make
    meanwhile, of any server. Beyond that, the call fails with `RoundsExceeded`. Before revision
    2026-07-28, the server gets error -32013 instead, and over a pipe a request counts for every call in flight.
    Between calls, a server may make as many requests per hour."""

    max_model_calls: int = count(100)
    """Requests for sampling among those of *max_inputs*, with the same consequences. Raise it for servers with long tool loops."""

    max_nesting: int = count(8)
    """Handlers nested in one another: a handler makes a call, the server asks for input, another handler runs, and so
    on. Deeper requests are refused like those beyond *max_inputs*. Before revision 2026-07-28 a
    request does not always tell which call it is for: over a pipe, never. Then it counts for the outermost one that no
    request is handled for. So if a handler makes several calls at once, nesting may be deeper, up to *max_inputs*."""

    max_inputs_per_round: int = count(64)
    """Requests for input in one result (revision 2026-07-28)."""

    max_idle_rounds: int = count(3)
    """Results in a row that request no input and only ask the client to call again (revision 2026-07-28)."""

    max_cache: int = in_bytes(16 * MiB)
    """Bytes of cached results that the server declared fresh (revision 2026-07-28). Beyond that, the oldest are removed."""

    def __post_init__(self) -> None:
        check_limits(self)
