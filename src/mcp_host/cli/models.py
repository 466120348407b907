"""The model that ``--model`` names, and the approver of its calls and of servers' requests for it."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from anyio import sleep

from mcp_host.cli.arithmetic import MODELS, Model
from mcp_host.cli.console import Console
from mcp_host.cli.options import Options
from mcp_host.cli.output import UsageError, print_aside, print_error
from mcp_host.errors import CallDenied, ProviderError, excerpt, quoted
from mcp_host.providers.exchange.clients import KEYS
from mcp_host.sampling import Allow, Deny, ProposedCall, SamplingRequest
from mcp_host.sampling.terminal import ask_in_terminal
from mcp_host.types import CreateMessageResult

Approver: TypeAlias = Callable[[SamplingRequest | ProposedCall], Awaitable[Allow | Deny]]
"""Allows or denies a request of a server for the model, or a call that the model makes."""

NO_PERSON = "this client has no terminal to ask its user in"
MAX_SAID = 2000  # characters of what a provider says
MAX_WAIT = 30.0  # seconds until the provider is asked again: after longer ones, the person decides
DENIED = "is denied, because there is no terminal to ask in; --yes allows it"


def make_model(options: Options, *, show: Callable[[str], None] = print_aside, **arguments: Any) -> Model:
    """The model of ``--model``: a built-in one, or one of a provider, whose adapter gets the *arguments*.

    If a provider wants to be asked again soon, *show* gets a line about it. With ``--verbose``, it also gets what the
    provider says of each failure: errors do not have it, because they also reach logs, and it may repeat the prompt.

    It blocks while the person unlocks the keyring, so it is called before an event loop runs.

    Raises:
        UsageError: There is no such provider, its SDK is not installed, or it has no key.
    """
    name, key = options.model, None
    assert name is not None, "the caller has looked, or it is required"
    if name in MODELS:
        return MODELS[name]
    from mcp_host.cli.keys import key_in_file, key_in_keyring  # here, because most commands need no model
    from mcp_host.providers.lookup import KeyNotFound, model

    make = partial(model, name, retry=False, **arguments)  # the SDK's retries would show nothing
    if options.api_key_file is not None:
        key = key_in_file(options.api_key_file)
    made: Model
    try:
        try:
            made = make(api_key=key)
        except KeyNotFound as exc:
            key = key_in_keyring(exc)
            made = make(api_key=key)
    except (ValueError, ImportError) as exc:
        raise UsageError(str(exc)) from exc
    if options.verbose:
        made = partial(_ask_and_explain, made, show, key)
    return partial(_ask_again, made, show)


async def _ask_again(model: Model, show: Callable[[str], None], request: SamplingRequest) -> CreateMessageResult:
    """Ask *model*, and once more if the provider says that it will answer soon."""
    try:
        return await model(request)
    except ProviderError as exc:
        wait = exc.retry_after
        if wait is None or wait > MAX_WAIT or not exc.transient:
            raise
        show(f"{exc}. Waiting.")
    await sleep(wait)
    return await model(request)


async def _ask_and_explain(
    model: Model, show: Callable[[str], None], key: str | None, request: SamplingRequest
) -> CreateMessageResult:
    """Ask *model*. *show* gets what the provider says of a failure, without its *key* and the secrets of the environment."""
    try:
        return await model(request)
    except ProviderError as exc:
        if (original := exc.original) is not None:
            keys = [*filter(None, [key, *map(os.environ.get, KEYS.get(exc.provider, ()))])]
            said = str(original) or str(original.__cause__ or "")  # our own marks have no text
            show(f"{exc.provider}: {type(original).__name__}: {excerpt(_without_secrets(said, keys), MAX_SAID)}")
        raise


def _without_secrets(said: str, keys: Sequence[str]) -> str:
    """What a provider has *said*, with *keys* and the secrets of the environment marked.

    Short keys, such as the "x" that a server of one's own gets, are marked only where they stand alone: words have them.
    """
    from mcp_host.testing.cassettes.redaction import REDACTED, Redaction  # few failures are explained
    from mcp_host.testing.cassettes.secret_texts import SHORTEST

    marked = Redaction([key for key in keys if len(key) >= SHORTEST]).text(said)
    for key in keys:
        if len(key) < SHORTEST:
            marked = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", REDACTED, marked)
    return marked


def approver(options: Options, console: Console) -> Approver:
    """Asks the person at *console*. With ``--yes`` all is allowed; without a terminal it is denied.

    Built-in models cost nothing, so servers need no approval for them.
    """
    is_free = options.model in MODELS and options.verb != "chat"
    return console.decider(ask_in_terminal, _deny, agrees=options.yes or is_free)


async def _deny(request: SamplingRequest | ProposedCall, /) -> Deny:
    """Deny a request of a server, and say so on stderr.

    Raises:
        CallDenied: It is a call of the model, which cannot do what it was asked to do without it.
    """
    if isinstance(request, ProposedCall):
        raise CallDenied(f"the call of {quoted(request.name)} {DENIED}", NO_PERSON)
    print_error(f"the request of {quoted(request.server)} for the model {DENIED}")
    return Deny(NO_PERSON)
