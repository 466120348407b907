"""The command `proxy`: a server in front of another one, over stdin and stdout for the host that starts it, or over HTTP."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from logging.handlers import RotatingFileHandler

from mcp_host.cli.arithmetic import MODELS
from mcp_host.cli.connection import authorization_of, transport_of
from mcp_host.cli.console import Console
from mcp_host.cli.models import make_model
from mcp_host.cli.options import Options, secret_of
from mcp_host.cli.output import Report, UsageError, print_aside
from mcp_host.client.pins import ToolPins
from mcp_host.client.tool_policy import ToolPolicy
from mcp_host.concurrency import signals
from mcp_host.group import ServerOptions
from mcp_host.limits import Limits
from mcp_host.proxy import Proxy, allow_tools, ask_host
from mcp_host.proxy.proxy import CLOSE_TIMEOUT, LIMITS, STATE_KEY_SIZE
from mcp_host.sampling import Approve, Sampling, always
from mcp_host.sampling.terminal import ask_in_terminal
from mcp_host.types import Tool

LOG_SIZE = 1_000_000  # bytes of a log file


def run(options: Options) -> Report:
    """Serve the host until it closes stdin, or hosts over HTTP until a signal; then end the server. Hosts keep what is written to stderr.

    Raises:
        UsageError: The URL, a header, the token or the key is invalid, there is no such model, or the log file or the port cannot be used.
        ConfigError: The file of servers cannot be read.
        Exception: No server of that file can be used.
    """
    if options.words and options.config is None:
        raise UsageError(f"unexpected argument {options.words[0]!r}: names are for the servers of --config")
    key = state_key(options)
    with _log(options):
        _serve(options, key)
    return Report()


def _serve(options: Options, key: bytes | None) -> None:
    sampling, models = None, list[str]()
    if options.model is not None:
        model = make_model(options)
        models.append(options.model.partition(":")[2] or options.model)  # without the provider
        sampling = Sampling(with_tools=model, approve=allow_tools(*options.allow, otherwise=approver(options)))
    auth, explaining = authorization_of(options, Console())
    with explaining:
        proxy = Proxy(
            transport_of(options, auth, on_stderr=print_aside) if options.config is None else _servers(options),
            sampling=sampling,
            answer_sampling=options.answer_sampling,
            models=models,
            tools=tool_policy(options),
            era=options.era,
            limits=limits(options),
            state_key=key,
        )
        gc.freeze()  # collecting what stays as long as the process took 18 ms, in which every call waits
        if options.http is None:
            proxy.run_stdio()
        else:
            run_http(proxy, *options.http, options)


def _servers(options: Options) -> Mapping[str, ServerOptions]:
    from mcp_host.cli.group import prepared  # here, because importing it takes a while

    return signals.run(prepared, options, Console(), limits(options) or LIMITS)


def run_http(proxy: Proxy, host: str, port: int, options: Options) -> None:
    """Serve *proxy* over HTTP, for those that have the token in a variable, or one of an authorization server.

    Raises:
        UsageError: A library or the token is missing, the token or a URL is invalid, or it cannot listen there.
    """
    token = None if options.token_env is None else secret_of(options.token_env, "the bearer token")
    try:
        proxy.run_http(
            port,
            host=host,
            token=token,
            issuer=options.token_issuer,
            resource=options.resource,
            required_scopes=options.token_scope,
        )
    except (ImportError, OSError, ValueError) as exc:
        raise UsageError(f"--http: {exc}") from exc


@contextmanager
def _log(options: Options) -> Iterator[None]:
    """The log goes to stderr, and to the file of ``--log-file``."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if options.log_file is not None:
        try:
            handlers.append(RotatingFileHandler(options.log_file, maxBytes=LOG_SIZE, backupCount=3, encoding="utf-8"))
        except OSError as exc:
            raise UsageError(f"--log-file: {exc}") from exc
    log = logging.getLogger("mcp_host")
    level = log.level
    log.setLevel(logging.DEBUG if options.verbose else logging.WARNING)
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
    try:
        yield
    finally:
        log.setLevel(level)
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()


def limits(options: Options) -> Limits | None:
    """With the time of ``--timeout``; None without one: then a call ends when its host cancels it."""
    return None if options.timeout is None else replace(options.limits, close_timeout=CLOSE_TIMEOUT)


def state_key(options: Options) -> bytes | None:
    """The key that ``--state-key-env`` names; None without one.

    Raises:
        UsageError: The variable is missing, or too short.
    """
    if options.state_key_env is None:
        return None
    key = secret_of(options.state_key_env, "the key of request states").encode("utf-8", "surrogateescape")
    if len(key) < STATE_KEY_SIZE:
        raise UsageError(f"--state-key-env: the key has {len(key)} bytes, and needs {STATE_KEY_SIZE} at least")
    return key


def tool_policy(options: Options) -> ToolPolicy | None:
    """What ``--only`` and ``--pins`` let through; None if neither is given."""

    def allow(tool: Tool) -> bool:
        return any(fnmatchcase(tool.name, pattern) for pattern in options.only)

    if not options.only and options.pins is None:
        return None
    pins = None if options.pins is None else ToolPins(file=options.pins)
    return ToolPolicy(allow=allow if options.only else None, pins=pins)


def approver(options: Options) -> Approve:
    """Who is asked before the model answers, as ``--approve`` says."""
    if options.approve == "always" or options.model in MODELS:  # built-in models cost nothing
        return always
    return ask_in_terminal if options.approve == "terminal" else ask_host
