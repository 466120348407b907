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

from mcp_host.cli import commands, demo, output
from mcp_host.cli.arguments import Options, UsageError, parse
from mcp_host.cli.output import Page
from mcp_host.errors import McpError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. *argv* is without the program's name; by default the process's."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what an old console cannot show is no reason to fail
    logging.getLogger("mcp_host").addHandler(logging.NullHandler())  # the warnings are printed once, by us
    try:
        return _carry_out(parse(sys.argv[1:] if argv is None else argv))
    except UsageError as exc:
        output.complain(sys.stderr, str(exc))
        return output.USAGE
    except McpError as exc:
        if isinstance(exc.__cause__, BrokenPipeError):  # a handler of ours that tells what it does
            return _leave_quietly()
        output.complain(sys.stderr, str(exc))
        return output.code_of(exc)
    except KeyboardInterrupt:
        return output.INTERRUPTED
    except BrokenPipeError:
        return _leave_quietly()
    except Exception:
        traceback.print_exc()
        return output.DEFECT


def _leave_quietly() -> int:
    """Nobody reads our stdout any more. Python flushes it once more at exit, which must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return output.READER_LEFT


def _carry_out(options: Options) -> int:
    page = Page(sys.stdout)
    if options.verb == "demo":
        assert options.model is not None, "the arguments have a default for it"
        anyio.run(demo.run, options.model, page)
        return output.OK
    report = anyio.run(commands.run, options)
    if options.json:
        print(_document(report.document()), flush=True)
    elif report.complaint is None:
        report.tell(page)
    else:
        output.complain(sys.stderr, report.complaint)
    return output.OK if report.complaint is None else output.TOOL_ERROR


def _document(value: object) -> str:
    """JSON in ASCII, so that a terminal has nothing in it to obey."""
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")
