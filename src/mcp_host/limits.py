"""What one connection may take: times in seconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mcp_host.bounds import check_count, check_seconds

MiB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one client's connection. Sampling has its own: `SamplingLimits`."""

    connect_timeout: float = 30.0
    """Spawning or reaching the server, and the handshake, together. Stops like `timeout`. A server that
    runs but does not answer `initialize` in this time costs a third more, if fewer capabilities can be
    offered: it is asked once more with the fewest."""

    timeout: float = 3600.0
    """One call from beginning to end, whatever the server reports meanwhile. Stops while our side
    answers what the server asks within the call, for *input_timeout* in all. A server over HTTP that cannot
    be reached any more is tried again after 0.1, 0.5 and 2 seconds; then the call fails, however long it may take."""

    idle_timeout: float = 120.0
    """How long a server may be silent about one call. Progress that was asked for restarts it, and so does what
    the server asks within the call; it stops like `timeout`."""

    input_timeout: float = 3600.0
    """How long, in all, your handlers, forms and logins may stop the clocks of one call. After that
    the clocks run again, so that no server can stretch a call by asking."""

    close_timeout: float = 10.0
    """Closing; what is left then is killed."""

    max_message: int = 64 * MiB
    """One message: a line, a JSON body or an event, after decompression. Past it that request fails."""

    max_outbox: int = 64 * MiB
    """What may wait to be written to a pipe; past it, writers wait."""

    stall_timeout: float = 60.0
    """A server that reads nothing for this long, while something waits to be written, is given up."""

    max_answers: int = 1024
    """Requests of the server that may be in our hands at once; past it they are dropped and counted."""

    max_notifications: int = 1024
    """Notifications that may wait for a callback; past it the oldest are dropped and counted."""

    max_pages: int = 1000
    """Pages of one list; a server that never ends its list ends here."""

    max_inputs: int = 500
    """What a server may ask of us within one call: sampling, elicitation and roots, each question counted.
    Each turn of a server's tool loop is one. Past it the call ends with `RoundsExceeded`. In the revisions
    before 2026-07-28 the server is told -32013 instead, a request counts for every call that waits
    meanwhile, and between calls a server may ask as much in an hour."""

    max_nesting: int = 8
    """Handlers within each other: one makes a call, within which the server asks again, and so on. What is asked
    deeper is refused like what is past *max_inputs*, which counts for each of these calls anew."""

    max_inputs_per_round: int = 64
    """Questions that one result may hold (revision 2026-07-28)."""

    max_idle_rounds: int = 3
    """Results in a row in which a server asks for nothing and only wants to be called again (revision 2026-07-28)."""

    max_cache: int = 16 * MiB
    """Results kept for as long as the server calls them fresh (revision 2026-07-28); the oldest make room."""

    def __post_init__(self) -> None:
        for field in fields(self):
            check = check_count if field.name.startswith("max_") else check_seconds
            check(f"Limits.{field.name}", getattr(self, field.name))
