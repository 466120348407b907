"""The server's requests that are in our hands, each answered at most once."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from anyio import CancelScope

from mcp_host.client.exchange import PendingExchange
from mcp_host.protocol.jsonrpc import Id

REMEMBERED = 1024  # answered ids kept to recognise a replay; resumption replays recent events only

Key: TypeAlias = tuple[int, Id]  # (session epoch, request id)


class Answer:
    """One request of the server's, being answered."""

    def __init__(self, key: Key, outer: PendingExchange | None, waiting: list[PendingExchange]) -> None:
        self.key = key
        self.outer = outer
        self.scope = CancelScope()
        self.unwanted = False
        """The server cancelled it: "the receiver SHOULD NOT send a response"."""
        self._waiting = waiting  # the calls that cannot go on before this is answered
        for exchange in waiting:
            exchange.pause()

    def finish(self) -> None:
        for exchange in self._waiting:
            exchange.resume()

    def drop(self) -> None:
        """Stop answering; nobody waits for it."""
        self.unwanted = True
        self.scope.cancel()


class Answers:
    """All requests in our hands, by session and id."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._current: dict[Key, Answer] = {}
        self._done: deque[Key] = deque(maxlen=REMEMBERED)
        self._seen: set[Key] = set()

    def __contains__(self, key: Key) -> bool:
        return key in self._current

    def full(self) -> bool:
        return len(self._current) >= self._limit

    def answered(self, key: Key) -> bool:
        """Whether this very request has been answered before."""
        return key in self._seen

    def begin(self, answer: Answer) -> None:
        self._current[answer.key] = answer

    def end(self, answer: Answer) -> None:
        del self._current[answer.key]
        answer.finish()
        if len(self._done) == REMEMBERED:
            self._seen.discard(self._done[0])
        self._done.append(answer.key)
        self._seen.add(answer.key)

    def cancel(self, key: Key) -> None:
        """The server wants no answer any more."""
        if answer := self._current.get(key):
            answer.drop()

    def call_ended(self, exchange: PendingExchange) -> None:
        """A call is over: whatever the server asked on its behalf is moot."""
        if self._current:
            for answer in list(self._current.values()):
                if answer.outer is exchange:
                    answer.scope.cancel()

    def drop_before(self, epoch: float) -> None:
        """The sessions before *epoch* are over: their requests must not be answered into the next one."""
        for answer in list(self._current.values()):
            if answer.key[0] < epoch:
                answer.drop()
