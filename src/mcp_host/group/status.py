"""What a group knows about one of its servers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

ServerState: TypeAlias = Literal["connecting", "ready", "down", "needs_login", "needs_consent", "disabled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """One server of a `ClientGroup`, at one time.

    *state* is one of:

    - "connecting": an attempt is under way. A server that was down is "down" during later ones.
    - "ready": it is connected, and its tools are listed.
    - "down": it could not be reached, or its connection has ended. It is tried again, with growing pauses.
    - "needs_login": it wants a login, which `ClientGroup.log_in` begins.
    - "needs_consent": a person is asked whether to start it, or has not agreed.
    - "disabled": the host, or its file, has switched it off; or it was described wrongly, which *error* says.

    *since* is when that began, in UTC. *error* is the last reason why it was not ready; it stays when the server is back.
    *protocol_version* and *tools*, their number, are those of the last connection; None before the first.
    *restarts* counts the connections after the first.
    """

    name: str
    state: ServerState
    since: datetime
    error: str | None = None
    protocol_version: str | None = None
    tools: int | None = None
    restarts: int = 0
