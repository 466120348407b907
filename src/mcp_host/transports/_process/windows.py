"""A child process on Windows, in a job object. Type-checked, but not yet tested there.

Windows has no SIGTERM, and no process groups that can be signalled. A job object holds
the server and its descendants. It ends them together, also when our own process ends.
"""

from __future__ import annotations

import ctypes
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ctypes import wintypes
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from anyio import BrokenResourceError, CancelScope, ClosedResourceError, EndOfStream, open_process
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.lowlevel import checkpoint

from mcp_host.transports._process.child import GRACE, Child, OnChunk

assert sys.platform == "win32"  # so that type checkers skip this module elsewhere

KILL_ON_JOB_CLOSE = 0x2000
EXTENDED_LIMIT_INFORMATION = 9
PROCESS_SET_QUOTA_AND_TERMINATE = 0x0101
CREATE_NO_WINDOW = 0x08000000


class _BasicLimits(ctypes.Structure):
    _fields_ = (
        ("PerProcessUserTimeLimit", wintypes.LARGE_INTEGER),
        ("PerJobUserTimeLimit", wintypes.LARGE_INTEGER),
        ("LimitFlags", wintypes.DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", wintypes.DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", wintypes.DWORD),
        ("SchedulingClass", wintypes.DWORD),
    )


class _ExtendedLimits(ctypes.Structure):
    _fields_ = (
        ("BasicLimitInformation", _BasicLimits),
        ("IoInfo", ctypes.c_ulonglong * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


class Job:
    """A job object that ends its processes when it is closed."""

    def __init__(self, pid: int) -> None:
        self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        for function in (self._kernel.CreateJobObjectW, self._kernel.OpenProcess):
            function.restype = wintypes.HANDLE
        self._handle: int | None = self._kernel.CreateJobObjectW(None, None)
        limits = _ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = KILL_ON_JOB_CLOSE
        self._kernel.SetInformationJobObject(
            wintypes.HANDLE(self._handle), EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), ctypes.sizeof(limits)
        )
        process = self._kernel.OpenProcess(PROCESS_SET_QUOTA_AND_TERMINATE, False, pid)
        self._kernel.AssignProcessToJobObject(wintypes.HANDLE(self._handle), wintypes.HANDLE(process))
        self._kernel.CloseHandle(wintypes.HANDLE(process))

    def end(self) -> None:
        """End every process in the job."""
        if self._handle is not None:
            self._kernel.CloseHandle(wintypes.HANDLE(self._handle))
            self._handle = None


class WindowsInput:
    """The child's stdin. Windows cannot write to it without waiting, so every line is queued."""

    def __init__(self, stream: ByteSendStream) -> None:
        self._stream = stream

    def write(self, data: bytes | memoryview, /) -> None:
        """Nothing fits."""

    async def write_some(self, data: memoryview) -> int:
        await self._stream.send(bytes(data))
        return len(data)

    async def wait_until_read(self) -> None:
        await checkpoint()  # Windows cannot tell

    async def aclose(self) -> None:
        await self._stream.aclose()


class WindowsOutput:
    """The child's stdout or stderr."""

    def __init__(self, stream: ByteReceiveStream) -> None:
        self._stream = stream

    async def read_all(self, on_chunk: OnChunk) -> None:
        with suppress(EndOfStream, BrokenResourceError, ClosedResourceError):
            while True:
                for _ in on_chunk(await self._stream.receive()) or ():
                    await checkpoint()

    async def aclose(self) -> None:
        await self._stream.aclose()


@dataclass(frozen=True, slots=True)
class WindowsChild(Child):
    """A running server, in its own job object."""

    job: Job

    async def stop(self, limit: float) -> None:
        """Close the server's input and wait; then end the job."""
        grace = min(self.grace, limit / 3)
        with CancelScope(shield=True):
            await self.stdin.aclose()
            await self.exits_within(grace)
            self.job.end()
            await self.exits_within(GRACE)  # on a busy machine that may take longer than a step


async def start_child(command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None) -> Child:
    """Start *command*; "npx" is found as npx.cmd, as a shell would find it."""
    program = shutil.which(command[0], path=env.get("PATH")) or command[0]
    with CancelScope(shield=True):
        process = await open_process(
            [program, *command[1:]],
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=env,
            cwd=cwd,
            creationflags=CREATE_NO_WINDOW,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = WindowsOutput(process.stdout), WindowsOutput(process.stderr)
    return WindowsChild(process, WindowsInput(process.stdin), stdout, stderr, Job(process.pid))
