"""Asking a person in the terminal whether a server may use the model."""

from __future__ import annotations

import logging
import math
import os
import sys
from contextlib import suppress

from anyio import wait_readable, wait_writable

from mcp_host.sampling.approval import Allow, Deny, Scope
from mcp_host.sampling.display import describe
from mcp_host.sampling.request import SamplingRequest
from mcp_host.sampling.slots import FairSemaphore, SemaphoreShare, Slot

logger = logging.getLogger(__name__)

ENTER = (b"\n", b"\r")  # the second where the host has put the terminal into raw mode
SCOPES: dict[bytes, Scope] = {
    **dict.fromkeys((b"y", b"yes"), "request"),
    **dict.fromkeys((b"a", b"all"), "call"),
    **dict.fromkeys((b"s", b"session"), "session"),
}
LONGEST_ANSWER = 1024  # bytes; a pasted page is no answer
NO_TERMINAL = "this client has no terminal to ask its user in"
IN_BACKGROUND = "this client runs in the background, where it cannot ask its user"
WITHDRAWN = b"\n(the question was withdrawn)\n"

# One question at a time, for all servers and every `Sampling`: there is one person,
# and a "y" must not answer the wrong question.
_one_at_a_time = SemaphoreShare(FairSemaphore(1), free=1, queue_space=math.inf)


async def ask_in_terminal(request: SamplingRequest, /) -> Allow | Deny:
    """Show the request in the terminal and ask whether the model may answer it.

    "y" allows this request, "a" everything that the same call asks for (offered if the call is known), "s"
    everything on this connection; the last two for the same tools or fewer, see `Allow`.
    Any other answer denies.

    It asks in the terminal of the standard streams, else in the controlling terminal of
    the process, like ssh and sudo. Without a terminal (a service, CI), or if
    the host runs in the background, the answer is `Deny`. Keys pressed before the
    question is shown do not count. The host must not read from the same terminal
    meanwhile. A timeout or cancellation ends the question at once and leaves
    nothing behind that reads from the terminal.

    POSIX only. A wait for a Windows console cannot be cancelled, so there the
    answer is `Deny`; use an approver of your own.
    """
    if sys.platform != "win32":  # pragma: no branch
        slot = Slot(_one_at_a_time)
        await slot.acquire()
        try:
            return await ask(request, terminal_path())
        finally:
            slot.release()
    return Deny(NO_TERMINAL)  # pragma: no cover  # runs on Windows only


if sys.platform != "win32":  # pragma: no branch  # so that type checkers skip this on Windows
    import termios

    def terminal_path() -> str:
        """The terminal to ask in."""
        for stream in (0, 2, 1):  # the device itself where it is known: macOS cannot wait for /dev/tty
            with suppress(OSError):  # this stream is no terminal, or closed
                return os.ttyname(stream)
        return os.ctermid()

    async def ask(request: SamplingRequest, path: str) -> Allow | Deny:
        """Ask in the terminal at *path*."""
        try:
            # Opened again, so that O_NONBLOCK does not change the host's own streams.
            fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as exc:
            logger.debug("no terminal to ask in: %s", exc)
            return Deny(NO_TERMINAL)
        try:
            return await _ask(request, fd)
        except OSError as exc:
            logger.warning("asking in the terminal failed: %s", exc)
            return Deny(NO_TERMINAL)
        finally:
            os.close(fd)

    async def _ask(request: SamplingRequest, fd: int) -> Allow | Deny:
        with suppress(OSError):  # not our controlling terminal: it cannot stop our process
            if os.tcgetpgrp(fd) != os.getpgrp():  # reading would stop the process (SIGTTIN)
                return Deny(IN_BACKGROUND)
        await _write(fd, f"\n{describe(request, columns=os.get_terminal_size(fd).columns or 80)}\n")
        termios.tcflush(fd, termios.TCIFLUSH)
        await _write(fd, question(request))
        answer: bytes | None = None
        try:
            answer = await _read_line(fd)
        finally:
            if answer is None:
                with suppress(OSError):  # the terminal may be gone
                    os.write(fd, WITHDRAWN)
        scope = SCOPES.get(answer.strip().lower())
        if scope is None or (scope == "call" and request.outer is None):
            return Deny()
        return Allow(scope)


def question(request: SamplingRequest) -> str:
    """The possible answers, in lines that fit the narrowest terminal."""
    offered = ["y: yes, this once", "s: yes, and all on this connection"]
    if request.outer is not None:
        offered.insert(1, "a: yes, and all else of this call")
    keys = "/".join([line[0] for line in offered])
    return "\n".join([*offered, "Other tools are asked about again.", f"May your model answer this? [{keys}/N] "])


async def _write(fd: int, text: str) -> None:
    data = text.encode(errors="replace")
    while data:
        await wait_writable(fd)
        with suppress(BlockingIOError):  # the output was stopped (Ctrl-S) in between
            data = data[os.write(fd, data) :]


async def _read_line(fd: int) -> bytes:
    line = b""
    while not line.endswith(ENTER) and len(line) < LONGEST_ANSWER:
        await wait_readable(fd)
        with suppress(BlockingIOError):  # another process read it
            chunk = os.read(fd, LONGEST_ANSWER)
            if not chunk:  # Ctrl-D
                break
            line += chunk
    return line
