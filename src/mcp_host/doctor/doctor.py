"""What applications hold of the check-up."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL
from types import MappingProxyType
from typing import Literal

from anyio import run_process

from mcp_host.doctor.checkup import Checkup
from mcp_host.doctor.report import FORMATS, document, text
from mcp_host.doctor.service import INSTRUCTIONS, CheckupService
from mcp_host.protocol.negotiation import LEGACY_VERSIONS, MODERN_VERSIONS
from mcp_host.serving import in_process
from mcp_host.transports.in_process import Inbox, InProcess, Outbox
from mcp_host.types import Implementation
from mcp_host.version import __version__

NAME = "mcp-host doctor"
VERSIONS = (MODERN_VERSIONS[0], LEGACY_VERSIONS[0])
"""The revisions whose rules are known here."""
STDERR = 2  # stdout is for the report
EMPTY: Mapping[str, str] = MappingProxyType({})
TIMEOUT = 300.0  # seconds for one answer: a person may have to decide, and then a model answers


class Doctor:
    """A server that checks the host it runs under, with one tool: ``check_host``.

    The host has to call it until its result says that the check-up is complete: each call shows some of the
    exchanges, and since 2026-07-28 what a host refuses ends a call.

    >>> doctor = Doctor()
    >>> async with Client(doctor, sampling=...) as client:
    ...     while not (await client.call_tool("check_host")).structured_content["complete"]:
    ...         pass
    >>> print(doctor.text())

    *versions* are the revisions that it speaks. A request that the host does not answer within *timeout* seconds is
    given up. *report* is a file that gets the report after each call of the tool: JSON, JUnit XML or text, by its suffix.
    """

    def __init__(
        self, *, versions: Sequence[str] = VERSIONS, timeout: float = TIMEOUT, report: Path | None = None
    ) -> None:
        if not versions or not set(versions) <= set(VERSIONS):
            raise ValueError(f"versions are among {', '.join(VERSIONS)}")
        self.versions = tuple(versions)
        self._report = report
        self._service = CheckupService(
            info=Implementation(name=NAME, version=__version__),
            instructions=INSTRUCTIONS,
            versions=self.versions,
            ttl=0.0,
            resume_timeout=timeout,
            max_suspended=16,
            timeout=timeout,
            changed=self.write_report,
        )

    @property
    def checkups(self) -> list[Checkup]:
        """The host in each revision that it has called the tool in."""
        return list(self._service.checkups.values())

    @property
    def begun(self) -> int:
        """How many exchanges have begun, in all revisions."""
        return sum(len(checkup.seen) for checkup in self.checkups)

    @property
    def complete(self) -> bool:
        """Whether there was a check-up, and none has exchanges left."""
        return bool(self.checkups) and not any(checkup.remaining for checkup in self.checkups)

    @property
    def failed(self) -> bool:
        """Whether a MUST is broken."""
        return any(outcome.verdict == "failed" for checkup in self.checkups for outcome in checkup.outcomes())

    def text(self) -> str:
        """The report for people."""
        return text(self.checkups)

    def document(self) -> dict[str, object]:
        """The report for programs, as JSON."""
        return document(self.checkups)

    def write_report(self) -> None:
        """Write the report to its file, if there is one.

        Raises:
            OSError: It cannot be written.
        """
        if self._report is not None:
            self._report.write_text(FORMATS.get(self._report.suffix, text)(self.checkups), encoding="utf-8")

    def in_process(self) -> InProcess:
        """A transport to this server in this process: ``Client(doctor)`` uses it."""
        return InProcess(self._serve, name=NAME)

    async def _serve(self, inbox: Inbox, outbox: Outbox) -> None:
        await in_process.serve(self._service, inbox, outbox.send_nowait)

    def run_stdio(self, *, backend: Literal["asyncio", "trio"] = "asyncio") -> None:
        """Serve the host that has started this process, until it closes stdin."""
        from mcp_host.serving.stdio import run  # here, because only a program needs it

        run(self._service, backend)

    @asynccontextmanager
    async def http(self, *, versions: Sequence[str] = ()) -> AsyncIterator[str]:
        """Serve over Streamable HTTP under uvicorn, on a free port of 127.0.0.1; the value is the URL.

        *versions* are those to offer there, by default all.

        Raises:
            ImportError: uvicorn is missing; it comes with the extra ``mcp-host[testing]``.
        """
        from mcp_host.serving.http.app import HttpApp  # here, because most hosts start it
        from mcp_host.serving.http.uvicorn_server import serve  # and because only this needs uvicorn

        service = replace(self._service, versions=tuple(versions or self.versions))
        async with serve(HttpApp(service, json_response=False, path="/mcp", hosts=())) as url:
            yield url

    async def check(self, command: Sequence[str], env: Mapping[str, str] = EMPTY) -> None:
        """Check the host that *command* starts with a URL as its last argument. What it prints goes to stderr.

        It is started in one revision after the other, and again as long as it makes exchanges. *env* are variables
        that it gets beside those of this process.

        Raises:
            ImportError: As `http`.
            OSError: It cannot be started.
        """
        for version in self.versions:
            async with self.http(versions=[version]) as url:
                while True:
                    before, words = self.begun, [*command, url]
                    await run_process(
                        words, stdin=DEVNULL, stdout=STDERR, stderr=None, check=False, env={**os.environ, **env}
                    )
                    if self.begun == before or self.complete:
                        break
