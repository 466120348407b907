"""The model that ``--model`` names, and the approver of its calls and of servers' requests for it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from mcp_host.cli.arguments import Options
from mcp_host.cli.arithmetic import MODELS, Model
from mcp_host.cli.output import UsageError, print_error
from mcp_host.errors import CallDenied, ProviderError, excerpt, quoted
from mcp_host.sampling import Allow, Deny, ProposedCall, SamplingRequest
from mcp_host.sampling.terminal import ask_in_terminal
from mcp_host.types import CreateMessageResult

Approver: TypeAlias = Callable[[SamplingRequest | ProposedCall], Awaitable[Allow | Deny]]
"""Allows or denies a request of a server for the model, or a call that the model makes."""

KEY_NAME = re.compile("(KEY|TOKEN|SECRET|PASSWORD)$")
MIN_KEY = 8  # characters; shorter values are no keys, and may be a part of any word
MAX_SAID = 2000  # characters of what a provider says

NO_PERSON = "this client has no terminal to ask its user in"
DENIED = "is denied, because there is no terminal to ask in; --yes allows it"


def make_model(name: str, *, show: Callable[[str], None] | None = None, **options: object) -> Model:
    """The model called *name*: a built-in one, or one of a provider, whose adapter gets the *options*.

    With *show*, that gets what a provider says of each failure, without the keys of the environment: errors do not
    have it, because they also reach logs, and the provider may repeat the prompt.

    Raises:
        UsageError: There is no such provider, its SDK is not installed, or it has no key.
    """
    if name in MODELS:
        return MODELS[name]
    from mcp_host.providers.lookup import model  # here, because most commands need no model

    try:
        made = model(name, **options)
    except (ValueError, ImportError) as exc:
        raise UsageError(str(exc)) from exc
    return made if show is None else partial(_ask_and_show, made, show)


async def _ask_and_show(model: Model, show: Callable[[str], None], request: SamplingRequest) -> CreateMessageResult:
    try:
        return await model(request)
    except ProviderError as exc:
        if (original := exc.original) is not None:
            said = str(original) or str(original.__cause__ or "")  # our own marks have no text
            show(f"{exc.provider}: {type(original).__name__}: {excerpt(_without_keys(said), MAX_SAID)}")
        raise


def _without_keys(text: str) -> str:
    """*text* without the values of variables such as OPENAI_API_KEY, which a provider may repeat."""
    for name, value in os.environ.items():
        if KEY_NAME.search(name) and len(value) >= MIN_KEY:
            text = text.replace(value, f"[{name}]")
    return text


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
