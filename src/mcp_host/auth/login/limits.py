"""How often servers may have a person log in."""

from __future__ import annotations

from collections.abc import Callable

from mcp_host.auth.errors import LoginFailed
from mcp_host.auth.requests.urls import shown

MAX_LOGINS = 5  # that one server may want of a person in LOGINS_TIME
LOGINS_TIME = 600.0  # seconds
LOG_IN = "call OAuth.login(url)"


class LoginLimits:
    """Bounds how often each server has a person log in, wherever it redirects to. Each time, a page opens in a browser."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}
        """When each server has wanted logins lately, by its URL."""

    def count(self, url: str) -> None:
        """Count a login for the server at *url*.

        Raises:
            LoginFailed: It is one too many.
        """
        now = self._clock()
        recent = {url: [time for time in times if 0 <= now - time < LOGINS_TIME] for url, times in self._times.items()}
        self._times = {url: times for url, times in recent.items() if times}
        times = self._times.setdefault(url, [])
        if len(times) == MAX_LOGINS:
            raise LoginFailed(
                f"{shown(url)} wants yet another login, after {MAX_LOGINS} within {LOGINS_TIME / 60:.0f} minutes: "
                f"refused for the next {times[0] + LOGINS_TIME - now:.0f} s. To log in all the same, {LOG_IN}"
            )
        times.append(now)

    def forget(self, url: str) -> None:
        """Reset the count for the server at *url*."""
        self._times.pop(url, None)
