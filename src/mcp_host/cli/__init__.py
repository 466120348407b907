"""The `mcp-host` command."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from itertools import takewhile

from mcp_host.cli.arguments import parse
from mcp_host.cli.commands import COMMANDS
from mcp_host.cli.output import (
    ExitCode,
    Printer,
    Report,
    discard,
    print_error,
    print_failure,
    print_json,
    print_to_stderr,
    text_of,
)
from mcp_host.concurrency.signals import ended_by_signals
from mcp_host.errors import InvalidToolOutput, ServerError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. *argv* is without the program's name; by default the process's."""
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an old console cannot show every character
    logging.getLogger("mcp_host").addHandler(logging.NullHandler())  # the command prints each warning once
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            with ended_by_signals():
                return _run(argv)
        except (Exception, KeyboardInterrupt) as exc:
            if isinstance(exc.__cause__, BrokenPipeError):  # a sampling handler that prints
                raise exc.__cause__ from None
            if isinstance(exc, BrokenPipeError):
                raise
            return _print_failure(exc, as_json="--json" in takewhile(lambda arg: arg != "--", argv))
    except BrokenPipeError:
        discard(sys.stdout)
        return ExitCode.BROKEN_PIPE


def _open_missing_streams() -> None:
    """Some of the standard streams may be closed where the command is started. Python has None for them."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115  # until the process ends


def _print_failure(exc: BaseException, *, as_json: bool) -> ExitCode:
    code = ExitCode.of(exc)
    if code is ExitCode.INTERNAL_ERROR:
        print_to_stderr("".join(traceback.format_exception(exc)), end="")
    elif code is not ExitCode.INTERRUPTED:
        print_failure(exc)
        for note in getattr(exc, "__notes__", ()):
            print_error(note)
    if as_json:
        error: dict[str, object] = {
            "type": type(exc).__name__,
            "message": text_of(exc) or code.meaning,
            "exitCode": code,
        }
        if isinstance(exc, ServerError) and exc.code is not None:
            error["code"] = exc.code
            if exc.data is not None:
                error["data"] = exc.data
        if isinstance(exc, InvalidToolOutput):
            error["result"] = exc.result.to_wire()
        print_json({"error": error})
    return code


def _run(argv: Sequence[str]) -> ExitCode:
    options = parse(argv)
    module = COMMANDS[options.verb.partition(" ")[0]].module
    report: Report = import_module(f"mcp_host.cli.commands.{module}").run(options)  # only this one: some take a while
    if options.json:
        print_json(report.document)
    else:
        report.show(Printer(sys.stdout))
    for text in report.errors:
        print_error(text)
    return report.code
