"""Retry delays: how long to wait before the next attempt, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_RETRY = 1.0  # seconds, for a server that sends no `retry`; two official SDKs use the same
RETRY_FLOOR = 0.1  # `retry: 0` in a loop cost a peer 12,000 GETs in five seconds
RESTART_PAUSE = 0.5  # seconds before a server that keeps ending is started again; longer each time
RETRY_CAP = 3600.0  # "The client MUST respect the retry field"; no call lasts longer than this
GROWTH = 1.5
RETRY_DELAYS = (0.1, 0.5, 2.0)  # seconds before each resend of one message; after the last one, the send fails
STABLE_AFTER = 30.0  # seconds after which an ended stream counts as a success: proxies cut idle ones every minute


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Counts consecutive failures, and computes the delay before the next attempt.

    The delay is constant for the first *flat_failures* failures. Then it grows, up to
    *max_delay* seconds or what the server asked for, whichever is longer. It is never shorter
    than *min_delay*. After *max_failures* consecutive failures the backoff is exhausted.
    A connection that lasted for *stable_after* seconds is no failure.
    """

    flat_failures: int = 0
    max_delay: float = 30.0
    max_failures: int
    min_delay: float = RETRY_FLOOR
    stable_after: float = STABLE_AFTER
    failures: int = 0

    @property
    def exhausted(self) -> bool:
        return self.failures >= self.max_failures

    def fail(self) -> None:
        """Record an attempt that brought no message."""
        self.failures += 1

    def reset(self) -> None:
        """Record a message: the next failure is the first one again."""
        self.failures = 0

    def ended(self, seconds: float, *, useful: bool = False) -> None:
        """Record the end of a connection that lasted *seconds*; a stable or *useful* one resets the count first."""
        if useful or seconds >= self.stable_after:
            self.reset()
        self.fail()

    def delay(self, retry: float | None) -> float:
        """Seconds until the next attempt, if the server asked for *retry*."""
        base = min(max(DEFAULT_RETRY if retry is None else retry, self.min_delay), RETRY_CAP)
        grown = base * GROWTH ** min(max(self.failures - self.flat_failures, 0), 32)  # 1.5 ** 32 exceeds every cap
        return min(grown, max(base, self.max_delay))


def listen_backoff() -> Backoff:
    """For a stream of unprompted messages. It is exhausted after at least half a minute of failures."""
    return Backoff(max_failures=10)


def restart_backoff() -> Backoff:
    """For a server process that keeps exiting."""
    return Backoff(max_failures=8, min_delay=RESTART_PAUSE)


def resume_backoff() -> Backoff:
    """For the rest of a response.

    A server may close the stream and be polled for the rest as often as it likes (SEP-1699),
    without a message for as long as a tool runs. The call's deadlines end that.
    """
    return Backoff(flat_failures=3, max_delay=5.0, max_failures=1000)
