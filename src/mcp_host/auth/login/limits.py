"""How often servers may have a person log in."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from mcp_host.auth.errors import LoginFailed
from mcp_host.auth.requests.urls import shown
from mcp_host.errors import excerpt

MAX_LOGINS = 5  # that one server may want of a person in LOGINS_TIME
LOGINS_TIME = 600.0  # seconds; for as long, scopes that were denied are not asked for again
LOG_IN = "call OAuth.login(url)"


@dataclass(frozen=True, slots=True)
class _Denial:
    """A person, or an authorization server, has denied *scopes* to the server at *url*."""

    url: str
    scopes: Set[str]
    time: float


class LoginLimits:
    """Bounds how often each server has a person log in, wherever it redirects to. Each time, a page opens in a browser."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}
        """When each server has wanted logins lately, by its URL."""
        self._denials: list[_Denial] = []

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

    def deny(self, url: str, scopes: Set[str]) -> None:
        """Note that *scopes* were denied to the server at *url*."""
        self._denials = [*self._recent_denials(), _Denial(url, scopes, self._clock())]

    def check(self, url: str, scopes: Set[str]) -> None:
        """Check that *scopes* do not include all that were denied in one login lately.

        Raises:
            LoginFailed: They do.
        """
        for denial in self._recent_denials():
            if denial.url == url and denial.scopes <= scopes:
                raise LoginFailed(
                    f"{shown(url)} needs scopes that were denied ({excerpt(' '.join(sorted(denial.scopes)))}): they are "
                    f"not asked for again for the next {denial.time + LOGINS_TIME - self._clock():.0f} s. "
                    f"To be asked all the same, {LOG_IN}, and repeat the request"
                )

    def forget(self, url: str) -> None:
        """Reset the count for the server at *url*, and what was denied to it."""
        self._times.pop(url, None)
        self._denials = [denial for denial in self._denials if denial.url != url]

    def _recent_denials(self) -> list[_Denial]:
        now = self._clock()
        return [denial for denial in self._denials if 0 <= now - denial.time < LOGINS_TIME]
