"""What a scripted model says, in neutral terms. The servers in `servers/` say it as a provider's API would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call. *arguments* as text are sent as they are, which may be broken JSON, where the API has text."""

    name: str
    arguments: Mapping[str, object] | str = field(default_factory=dict)
    id: str | None = None
    """None: the server makes one as the real API does (some have none)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer of the model: thinking, then text, then calls.

    A server that gets *thinking* signs it as the real API does, and refuses each later request that has the
    calls of this answer without it, or with it altered.
    """

    text: str = ""
    calls: Sequence[Called] = ()
    thinking: str | None = None
    stop: Literal["end", "stop_sequence", "max_tokens", "refusal", "content_filter"] = "end"
    """``end`` with calls is what the API says after tool calls."""
    redacted: bool = False
    """The API hides the *thinking*, where it can: what it sends instead must come back, too."""
    tokens: tuple[int, int] = (11, 7)
    """Input and output, with everything that was cached or thought."""
    cached: int = 0
    """How much of the input came from the provider's cache."""
    interleaved: bool = False
    """A stream sends a piece of each call in turn, where the API has an index for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The server answers with this HTTP status and the provider's own JSON of an error."""

    status: int
    retry_after: str | None = None
    location: str | None = None
    """Where it redirects to."""
    body: str | None = None
    """Sent instead of the provider's JSON."""
    kind: str = "application/json"
    """The type of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The stream ends in the middle of *said*: after *events* events and *more_bytes* bytes comes *error*, or the connection is cut."""

    said: Said
    events: int = 0
    more_bytes: int = 0
    is_closed: bool = False
    """The response ends as a whole one does, as behind some proxies: nothing but its content says that it was cut."""
    error: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    """The stream of *said* goes no further than *events* events, until the client closes it."""

    said: Said
    events: int


Turn = Said | Failed | Broken | Stalled
