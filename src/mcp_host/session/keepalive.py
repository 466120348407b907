"""Pings that keep a silent connection alive, and that find out if it is dead.

https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/ping
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from anyio import sleep

from mcp_host.concurrency.asking import unattended
from mcp_host.errors import (
    ConnectionClosed,
    McpError,
    McpTimeout,
    ProtocolError,
    ServerError,
    SessionLost,
    Unauthorized,
)
from mcp_host.session.call import CallTimeouts
from mcp_host.session.dispatcher import Dispatcher
from mcp_host.session.session import Session
from mcp_host.session.state import ClientState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class KeepAlive:
    """Pings the server each time that it has been silent for *interval* seconds.

    No ping is sent while a request is in flight, in either direction: that has its own timeouts, and some servers
    answer nothing while a tool runs. "If no response is received within a reasonable timeout period, the sender MAY:
    Consider the connection stale; Terminate the connection; Attempt reconnection procedures". The period is
    `Limits.idle_timeout`. A connection that all messages share is terminated by *lose*. Where each request has its
    own stream, only the session can be stale, and *renew* begins another.

    If the client is no longer authorized, no ping is sent until a request succeeds: a person is not asked to log in for
    pings.
    """

    dispatcher: Dispatcher
    state: ClientState
    interval: float
    renew: Callable[[Session], Awaitable[None]]
    check_era: Callable[[Session, ServerError], Awaitable[None]]
    """Ends the connection, if a refusal means that the server speaks another era now."""
    lose: Callable[[ConnectionClosed], None]

    async def run(self) -> None:
        """Ping until the connection has ended."""
        dispatcher, timeout = self.dispatcher, self.state.limits.idle_timeout
        pinged_at = -math.inf
        while dispatcher.closed is None:
            now = dispatcher.now()
            wait = self.interval if dispatcher.busy else max(dispatcher.heard_at, pinged_at) + self.interval - now
            if wait > 0:
                await sleep(wait)
                continue
            pinged_at, session = now, dispatcher.require()
            error: McpError | None = None
            timeouts = CallTimeouts.connecting(self.state.limits, dispatcher.now, timeout)
            with timeouts.scope() as scope:  # paused while middleware takes its time
                error = await self._ping(session, timeouts)
            lost = isinstance(error, SessionLost)
            if error is not None and not lost:
                logger.debug("%s: no pings until a request succeeds: %s", self.state.name, error)
                await dispatcher.next_success()
                continue
            if scope.cancelled_caught and dispatcher.heard_at <= pinged_at and not dispatcher.busy:
                silence = f"no answer to a ping for {timeout:g} s"
                if not dispatcher.stream_per_request:
                    self.lose(ConnectionClosed(f"{self.state.name}: {silence}"))
                    return
                self.state.warn_about_server(f"{silence}: initializing again")
                lost = True
            if lost:
                try:
                    await self.renew(session)
                except Exception as exc:  # of middleware, too
                    self.state.warn_about_server(f"no new session: {exc}")

    async def _ping(self, session: Session, timeouts: CallTimeouts) -> McpError | None:
        """Ping the server. Returns the error of a session that is lost, or of a client that is not authorized."""
        try:
            with unattended():
                await self.dispatcher.request_by_itself("ping", {}, session.era, timeouts)
        except (SessionLost, Unauthorized) as exc:
            return exc
        except ServerError as exc:
            logger.debug("%s: a ping was answered with an error: %s", self.state.name, exc)  # so it is alive
            with suppress(Exception):  # of a new session that has begun meanwhile
                await self.check_era(session, exc)
        except (ConnectionClosed, McpTimeout, ProtocolError) as exc:
            logger.debug("%s: a ping failed: %s", self.state.name, exc)  # the connection has ended; over HTTP, one POST
        except McpError as exc:  # of an Auth
            return exc
        except Exception as exc:  # of middleware
            self.state.warn_about_server(f"a ping failed: {exc}")
        return None
