"""Choosing among several models: by the server's preferences, among the models that the host allows.

"Hints are advisory—clients make final model selection" (client/sampling, Model Preferences).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain, dropwhile, takewhile
from math import isnan
from typing import TypeAlias

from mcp_host.errors import ProviderError, quoted
from mcp_host.handlers import as_async, check_plain
from mcp_host.sampling.request import AsyncHandler, Handler, SamplingRequest, log_subject
from mcp_host.slots import keep_slot_for_thread
from mcp_host.types import CreateMessageResult, ModelPreferences, ToolResultContent, ToolUseContent

MAX_CALLS = 4096  # tool calls whose model is remembered; beyond that, the oldest are forgotten

EXAMPLE = "Models([Model(handler, name=...), ...])"

NOT_ALLOWED = "this client has no model for this server"  # all that the server is told

logger = logging.getLogger(__name__)

AllowModels: TypeAlias = Callable[[SamplingRequest], Collection[str]]
"""The names of the models that a request may use. A plain function, called in the event loop, perhaps more than once."""


@dataclass(frozen=True, slots=True)
class Model:
    """One model to choose, and what you know of it.

    *handler* asks it. *cost*, *speed* and *intelligence* compare it with your other models, from 0 to 1: at *cost* 1 it
    is the most expensive, at *speed* 1 the fastest, at *intelligence* 1 the most capable.

    A server's hints match *name* and *aliases*. "Clients MAY map hints to equivalent models from different
    providers": list those as aliases.

    Raises:
        ValueError: A number is not from 0 to 1, a name is empty, or *aliases* is one text.
    """

    handler: Handler
    _: KW_ONLY
    name: str
    aliases: Sequence[str] = ()
    cost: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5

    def __post_init__(self) -> None:
        for scale in ("cost", "speed", "intelligence"):
            if not 0 <= getattr(self, scale) <= 1:
                raise ValueError(f"{scale} of {self.name} must be from 0 to 1, not {getattr(self, scale)}")
        if isinstance(self.aliases, str) or not all([self.name, *self.aliases]):
            raise ValueError(
                f"name must be a text, and aliases a list of texts, none of them empty: {self.name!r}, {self.aliases!r}"
            )

    def matches(self, hint: str) -> bool:
        """Whether *hint* is a part of its name or of an alias. Case does not matter."""
        return any(hint.casefold() in name.casefold() for name in (self.name, *self.aliases))

    def is_called(self, hint: str) -> bool:
        """Whether *hint* is its name or an alias. Case does not matter."""
        return any(hint.casefold() == name.casefold() for name in (self.name, *self.aliases))


@dataclass(frozen=True, slots=True)
class Choice:
    """The model that a request goes to. *why* is one sentence, for logs and approvals; it may quote the server's hint."""

    model: Model
    why: str


class Models:
    """A sampling handler that chooses one of *models* for each request. Servers get no other model.

    >>> models = Models([
    ...     Model(small, name="claude-haiku-5", cost=0.1, speed=0.9, intelligence=0.5),
    ...     Model(large, name="claude-opus-5", cost=0.9, speed=0.3, intelligence=1.0),
    ... ])
    ... sampling = Sampling(with_tools=models, approve=always)

    The first of the server's hints that is a part of a model's name or alias decides, and of several such models one with
    just that name. Otherwise, or if none matches, the server's priorities decide: they are weights from 0 to 1, of low cost, of speed and of intelligence.
    Among equals, and without priorities, the first in your list is chosen.

    A tool loop stays with its model, as no other can read its reasoning: a request with the results of tool calls goes
    to the model that made the calls, on the same connection (`SamplingRequest.session`). What the user says after the
    results changes nothing; an answer after them ends the loop.

    *allow* restricts the models of a request, for instance by its server. With *fallback*, a request whose provider
    fails for the moment (`ProviderError.transient`) goes to the next best model, unless a tool loop is under way. Text
    that the first model has passed to *on_delta* by then is not taken back.

    Raises:
        ValueError: There is no model, or two have the same name.
        TypeError: *models* is not a list of `Model`, or a handler or *allow* cannot be called.
    """

    def __init__(self, models: Sequence[Model], *, allow: AllowModels | None = None, fallback: bool = False) -> None:
        _check_items(models, Model, f"Models takes a list of Model, such as {EXAMPLE}")
        if not models:
            raise ValueError(f"Models needs a model: {EXAMPLE}")
        self._models = {model.name: model for model in models}
        if len(self._models) < len(models):
            raise ValueError(f"two models have the same name: {', '.join(model.name for model in models)}")
        self._handlers: dict[str, AsyncHandler] = {
            model.name: as_async(
                model.handler,
                argument=f"the handler of {model.name}",
                shape="(request: SamplingRequest) -> CreateMessageResult",
                before_thread=keep_slot_for_thread,
            )
            for model in models
        }
        if allow is not None:
            check_plain(allow, argument="allow", shape="(request: SamplingRequest) -> list[str]")
        self._allow = allow
        self._fallback = fallback
        self._made_by: dict[tuple[object, str, str], str] = {}  # the names of models, by `_call_key`; the oldest first

    def choose(self, request: SamplingRequest) -> Choice:
        """The model that *request* goes to. No model is asked and nothing changes, so an approver can show it.

        Raises:
            InputRefused: *allow* leaves no model.
            ValueError: *allow* names a model that is not in the list.
            TypeError: *allow* does not return a list of names.
        """
        [best, *_], why = self._ranked(request)
        return Choice(best, f"{best.name}: {why}")

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        """Ask the model that `choose` names.

        Raises:
            InputRefused, ValueError, TypeError: As `choose` does.
            Exception: What the handler of the model raises.
        """
        subject = log_subject(request.server)
        ranked, why = self._ranked(request)
        logger.debug("%s: %s: %s", subject, ranked[0].name, why)
        *first, last = ranked if self._fallback else ranked[:1]
        for model in first:
            try:
                return await self._ask(model, request)
            except ProviderError as exc:
                if not exc.transient:
                    raise
                logger.warning("%s: %s failed, so the next model is asked: %s", subject, model.name, exc)
        return await self._ask(last, request)

    def _ranked(self, request: SamplingRequest) -> tuple[list[Model], str]:
        """The models that *request* may go to, best first, and why the first is."""
        allowed = list(self._models.values())
        if self._allow is not None:
            allowed_names = self._allow(request)
            _check_items(allowed_names, str, "allow has to return a list of names")
            names = set(allowed_names)
            if unknown := sorted(names - self._models.keys()):
                raise ValueError(f"allow names {', '.join(unknown)}, but the models are {', '.join(self._models)}")
            allowed = [model for model in allowed if model.name in names]
        if not allowed:
            request.refuse(NOT_ALLOWED)
        maker = self._maker(request)
        if maker in allowed:
            return [maker], "it made the tool calls whose results are here"
        return rank(allowed, request.model_preferences or ModelPreferences())

    def _maker(self, request: SamplingRequest) -> Model | None:
        """The model that made the tool calls whose results are there since the assistant's last message."""
        before = dropwhile(lambda message: message.role != "user", reversed(request.messages))  # a prefill may follow
        said = takewhile(lambda message: message.role == "user", before)
        for block in chain.from_iterable(message.content for message in said):
            if isinstance(block, ToolResultContent):
                name = self._made_by.get(_call_key(request, block.tool_use_id))
                if name is not None:
                    return self._models[name]
        return None

    async def _ask(self, model: Model, request: SamplingRequest) -> CreateMessageResult:
        answer = await self._handlers[model.name](request)
        if isinstance(answer, str):
            answer = request.reply(answer, model=model.name)
        for block in answer.content:
            if isinstance(block, ToolUseContent):
                self._made_by[_call_key(request, block.id)] = model.name
        while len(self._made_by) > MAX_CALLS:
            del self._made_by[next(iter(self._made_by))]
        return answer


def _check_items(value: object, kind: type, wanted: str) -> None:
    """Check that *value* is a collection of *kind*. One text is not a collection of texts.

    Raises:
        TypeError: It is not. The text says what is *wanted*.
    """
    wrong: list[object] = [value]
    if isinstance(value, Collection) and not isinstance(value, str):
        wrong = [item for item in value if not isinstance(item, kind)]
    if wrong:
        raise TypeError(f"{wanted}, not {type(wrong[0]).__name__}")


def _call_key(request: SamplingRequest, id: str) -> tuple[object, str, str]:
    """A tool call: its connection, its server and its id. Servers choose their names, so two may have the same."""
    return (request.session, request.server, id)


def rank(models: Sequence[Model], preferences: ModelPreferences) -> tuple[list[Model], str]:
    """*models*, those that a server prefers first, and why the first is first. Equals stay in their order."""
    if len(models) == 1:
        return list(models), "the only model that is allowed"
    weights = {
        "cost": _weight(preferences.cost_priority),
        "speed": _weight(preferences.speed_priority),
        "intelligence": _weight(preferences.intelligence_priority),
    }

    def score(model: Model) -> float:
        total = weights["cost"] * (1 - model.cost)
        total += weights["speed"] * model.speed + weights["intelligence"] * model.intelligence
        return round(total, 9)  # 0.1 + 0.2 is equal to 0.3

    hints = [hint.name.strip() for hint in preferences.hints or () if hint.name and hint.name.strip()]

    def place(model: Model) -> tuple[int, bool]:
        """The index of the first hint that matches, and whether it is only a part of the name."""
        matching = ((index, not model.is_called(hint)) for index, hint in enumerate(hints) if model.matches(hint))
        return next(matching, (len(hints), True))

    ranked = sorted(models, key=lambda model: (place(model), -score(model)))
    wanted = ", ".join(f"{scale} {weight:g}" for scale, weight in weights.items() if weight)
    why = f"best for {wanted}" if wanted else "the first in the list, as the server states no priorities"
    if not hints:
        return ranked, why
    if (first := place(ranked[0]))[0] == len(hints):
        return ranked, f"no model matches the server's hints; {why}"
    matches = f"the server's hint {quoted(hints[first[0]])} matches"
    equals = [model for model in models if place(model) == first]
    return ranked, f"{matches}; of {len(equals)} such models, {why}" if equals[1:] else matches


def _weight(priority: float | None) -> float:
    """A server's priority, limited to 0 to 1. None and NaN count as 0."""
    return min(1.0, max(0.0, priority)) if priority is not None and not isnan(priority) else 0.0
