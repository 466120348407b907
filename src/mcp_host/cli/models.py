"""The model that ``--model`` names, and the approver of its calls and of servers' requests for it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from mcp_host.cli.arguments import Options
from mcp_host.cli.arithmetic import MODELS, Model
from mcp_host.cli.output import UsageError, print_error
from mcp_host.errors import CallDenied, quoted
from mcp_host.sampling import Allow, Deny, ProposedCall, SamplingRequest
from mcp_host.sampling.terminal import ask_in_terminal

Approver: TypeAlias = Callable[[SamplingRequest | ProposedCall], Awaitable[Allow | Deny]]
"""Allows or denies a request of a server for the model, or a call that the model makes."""

NO_PERSON = "this client has no terminal to ask its user in"
DENIED = "is denied, because there is no terminal to ask in; --yes allows it"


def make_model(name: str, **options: object) -> Model:
    """The model called *name*: a built-in one, or one of a provider, whose adapter gets the *options*.

    Raises:
        UsageError: There is no such provider, its SDK is not installed, or it has no key.
    """
    if name in MODELS:
        return MODELS[name]
    from mcp_host.providers.lookup import model  # here, because most commands need no model

    try:
        return model(name, **options)
    except (ValueError, ImportError) as exc:
        raise UsageError(str(exc)) from exc


def approver(options: Options, ask: Approver = ask_in_terminal) -> Approver:
    """*ask*, which asks the person at the terminal. With ``--yes`` all is allowed; without a terminal it is denied.

    Built-in models cost nothing, so servers need no approval for them.
    """
    if options.yes or (options.model in MODELS and options.verb != "chat"):
        return _allow
    return ask if sys.stdin.isatty() else _deny


async def _allow(request: SamplingRequest | ProposedCall, /) -> Allow:
    return Allow()


async def _deny(request: SamplingRequest | ProposedCall, /) -> Deny:
    """Deny a request of a server, and say so on stderr.

    Raises:
        CallDenied: It is a call of the model, which cannot do what it was asked to do without it.
    """
    match request:
        case ProposedCall(name=name):
            raise CallDenied(f"the call of {quoted(name)} {DENIED}", NO_PERSON)
        case SamplingRequest(server=server):
            print_error(f"the request of {quoted(server)} for the model {DENIED}")
    return Deny(NO_PERSON)
