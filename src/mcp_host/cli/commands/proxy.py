"""The command `proxy`: a server over stdin and stdout, for the host that starts it, in front of another server."""

from __future__ import annotations

from mcp_host.cli.arithmetic import MODELS
from mcp_host.cli.connection import authorization_of, transport_of
from mcp_host.cli.console import Console
from mcp_host.cli.models import make_model
from mcp_host.cli.options import Options
from mcp_host.cli.output import Report, print_aside
from mcp_host.proxy import Proxy, allow_tools, ask_host
from mcp_host.sampling import Approve, Sampling, always
from mcp_host.sampling.terminal import ask_in_terminal


def run(options: Options) -> Report:
    """Serve the host until it closes stdin, then end the server.

    Raises:
        UsageError: The URL or a header is invalid, or there is no such model.
    """
    sampling = None
    if options.model is not None:
        model = make_model(options.model, verbose=options.verbose)
        sampling = Sampling(with_tools=model, approve=allow_tools(*options.allow, otherwise=approver(options)))
    auth, explaining = authorization_of(options, Console())
    with explaining:
        transport = transport_of(options, auth, on_stderr=print_aside)
        Proxy(transport, sampling=sampling, answer_sampling=options.answer_sampling).run_stdio()
    return Report()


def approver(options: Options) -> Approve:
    """Who is asked before the model answers, as ``--approve`` says."""
    if options.approve == "always" or options.model in MODELS:  # built-in models cost nothing
        return always
    return ask_in_terminal if options.approve == "terminal" else ask_host
