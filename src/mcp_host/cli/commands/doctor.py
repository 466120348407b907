"""The command `doctor`: a server that checks the host that starts it, or one that it starts itself and gives a URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anyio import run as run_async

from mcp_host.cli.connection import environment
from mcp_host.cli.options import Options
from mcp_host.cli.output import ExitCode, Report, UsageError
from mcp_host.doctor import Doctor
from mcp_host.doctor.doctor import TIMEOUT, VERSIONS
from mcp_host.doctor.service import TOOL

ERAS: Mapping[str, Sequence[str]] = {"auto": VERSIONS, "modern": VERSIONS[:1], "legacy": VERSIONS[1:]}


def run(options: Options) -> Report:
    """Check a host, and report what came of it: on stdout, or on stderr if the host has stdout.

    Raises:
        UsageError: The report cannot be written, the host cannot be started, or uvicorn is missing.
    """
    doctor = Doctor(versions=ERAS[options.era], timeout=options.timeout or TIMEOUT, report=options.report)
    try:
        doctor.write_report()
        if options.command:
            run_async(doctor.check, options.command, environment(options))
        else:
            doctor.run_stdio()
        doctor.write_report()
    except (ImportError, OSError) as exc:  # without uvicorn; no such file or program
        raise UsageError(str(exc)) from exc
    called = {checkup.host.revision for checkup in doctor.checkups}
    missing = [version for version in doctor.versions if version not in called]
    errors = [f"the host did not call {TOOL} in revision {version}" for version in missing]
    code = ExitCode.OK if doctor.complete and not doctor.failed else ExitCode.CHECK_FAILED
    return Report(
        document=doctor.document(),
        show=lambda printer: printer.text(doctor.text()),
        errors=errors if options.command or not called else (),  # it chooses one where both are offered at once
        code=code if called else ExitCode.NO_CONNECTION,
    )
