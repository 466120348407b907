"""The `mcp-host` command."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper

import anyio

from mcp_host.cli import commands, demo
from mcp_host.cli.arguments import Options, parse
from mcp_host.cli.output import ExitCode, Printer, UsageError, print_error
from mcp_host.errors import McpError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. *argv* is without the program's name; by default the process's."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an old console cannot show every character
    logging.getLogger("mcp_host").addHandler(logging.NullHandler())  # the command prints each warning once
    try:
        return _run(parse(sys.argv[1:] if argv is None else argv))
    except UsageError as exc:
        print_error(str(exc))
        return ExitCode.USAGE
    except McpError as exc:
        if isinstance(exc.__cause__, BrokenPipeError):  # a sampling handler that prints
            return _stdout_closed()
        print_error(str(exc))
        return ExitCode.of(exc)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return _stdout_closed()
    except Exception:
        traceback.print_exc()
        return ExitCode.INTERNAL_ERROR


def _stdout_closed() -> ExitCode:
    """The reader of our stdout has gone. Python flushes it once more at exit, which must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.BROKEN_PIPE


def _run(options: Options) -> ExitCode:
    printer = Printer(sys.stdout)
    if options.verb == "demo":
        assert options.model is not None, "the arguments have a default for it"
        anyio.run(demo.run, options.model, printer)
        return ExitCode.OK
    report = anyio.run(commands.run, options)
    if options.json:
        # In ASCII, DEL escaped too: nothing in it controls a terminal.
        print(json.dumps(report.document, indent=2).replace("\x7f", "\\u007f"), flush=True)
    elif report.error is None:
        report.show(printer)
    else:
        print_error(report.error)
    return ExitCode.OK if report.error is None else ExitCode.TOOL_ERROR
