"""How often servers may have a person log in."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from mcp_host.auth.errors import LoginFailed
from mcp_host.auth.requests.discovery import shown

MOST_LOGINS = 5  # that the servers of one origin may want of a person in LOGINS_TIME
LOGINS_TIME = 600.0  # seconds


class LoginLimits:
    """Bounds how often the servers of each origin have a person log in. Each time, a page opens in a browser."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}
        """When the servers of each origin have wanted logins lately."""

    def count(self, url: str) -> None:
        """Count a login for the server at *url*.

        Raises:
            LoginFailed: It is one too many.
        """
        now = self._clock()
        recent = {
            origin: [time for time in times if 0 <= now - time < LOGINS_TIME] for origin, times in self._times.items()
        }
        self._times = {origin: times for origin, times in recent.items() if times}
        times = self._times.setdefault(_origin(url), [])
        if len(times) == MOST_LOGINS:
            raise LoginFailed(
                f"{shown(url)} wants yet another login, after {MOST_LOGINS} within {LOGINS_TIME / 60:.0f} minutes: "
                f"refused for the next {times[0] + LOGINS_TIME - now:.0f} s"
            )
        times.append(now)

    def forget(self, url: str) -> None:
        """Count anew for the server at *url*: the application has logged out, or asks for a login itself."""
        self._times.pop(_origin(url), None)


def _origin(url: str) -> str:
    scheme, netloc, *_ = urlsplit(url)
    return f"{scheme}://{netloc}"
