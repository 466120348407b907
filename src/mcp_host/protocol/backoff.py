"""When to try again what broke off or was not sent, and when to give it up: pure counting."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_RETRY = 1.0  # seconds, for a server that names no `retry`; two official SDKs wait as long
RETRY_FLOOR = 0.1  # `retry: 0` in a loop cost a peer 12,000 GETs in five seconds
RETRY_CAP = 3600.0  # "The client MUST respect the retry field"; no call lasts longer than this
GROWTH = 1.5
RETRY_DELAYS = (0.1, 0.5, 2.0)  # seconds before one message is sent again, each time; then it fails
STEADY = 30.0  # seconds after which a stream that ended has been a good one: proxies cut idle ones every minute


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Counts the attempts since the last message, and says how long to pause before the next.

    The first *patience* attempts keep the server's own pace; from then on pauses
    grow, to *slowest* seconds at most unless the server asked for longer. After
    *attempts* in a row the stream is to be given up.
    """

    patience: int
    slowest: float
    attempts: int
    missed: int = 0

    @property
    def exhausted(self) -> bool:
        return self.missed >= self.attempts

    def miss(self) -> None:
        """An attempt brought no message."""
        self.missed += 1

    def hit(self) -> None:
        """A message came: begin anew."""
        self.missed = 0

    def lasted(self, seconds: float, *, heard: bool = False) -> None:
        """A stream has ended, after so long; one that was steady, or brought something, was a good one."""
        if heard or seconds >= STEADY:
            self.hit()
        self.miss()

    def pause(self, retry: float | None) -> float:
        """Seconds until the next attempt, where the server asked for *retry*."""
        base = min(max(DEFAULT_RETRY if retry is None else retry, RETRY_FLOOR), RETRY_CAP)
        grown = base * GROWTH ** min(max(self.missed - self.patience, 0), 32)  # 1.5 ** 32 is past every cap
        return min(grown, max(base, self.slowest))


def listening() -> Backoff:
    """For a stream on which a server tells of things unprompted: exhausted after half a minute of failures or more."""
    return Backoff(patience=0, slowest=30.0, attempts=10)


def restarting() -> Backoff:
    """For a server process that keeps ending: given up after eight in a row."""
    return Backoff(patience=0, slowest=30.0, attempts=8)


def resuming() -> Backoff:
    """For the rest of a response.

    A server may end the stream as often as it likes and be polled for the rest
    (SEP-1699), in silence for as long as a tool runs: the call's deadlines end that.
    """
    return Backoff(patience=3, slowest=5.0, attempts=1000)
