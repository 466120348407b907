"""The steps on the way to a token, which `OAuth.explain` shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mcp_host.auth.requests.urls import shown

MAX_STEPS = 50  # of one server; older ones are dropped


@dataclass(frozen=True, slots=True)
class Step:
    """One step on the way to a token, for `OAuth.explain`."""

    action: str
    url: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.action} at {self.url}: {self.outcome}"


class Steps(list[Step]):
    """The steps of one server, without those before the last `MAX_STEPS`."""

    def add(self, action: str, url: str, outcome: str) -> None:
        self.append(Step(action, shown(url), outcome))
        del self[:-MAX_STEPS]

    def refuse_last(self, problem: str) -> Step:
        """Replace the outcome of the last step: what it found must not be used. Returns the step."""
        last = self[-1] = replace(self[-1], outcome=f"refused: {problem}")
        return last
